import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { type ApiKey, type ApiKeyWithToken, ConvokeError, type Scope } from '@convoke/sdk';
import { useList, usePoll, useQuery } from '../queries.ts';
import { Id } from '../parts/copy.tsx';
import { Dialog, Form, TextField } from '../parts/dialog.tsx';
import { Icon } from '../parts/icons.tsx';
import { Mark } from '../parts/mark.tsx';
import { notify, showProblem } from '../parts/notice.tsx';
import { Detail, Facts, Page } from '../parts/page.tsx';
import { OVERLAP_DEFAULT, OverlapField, refusedInWords } from '../parts/rotation.tsx';
import { type Column, Rows } from '../parts/rows.tsx';
import { SecretDialog, showOnce } from '../parts/secret.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { Ago, At } from '../parts/time.tsx';
import { addressOf, useAsked } from '../router.ts';
import { changingSession, client, inThisSession, may, session } from '../service.ts';
import { signIn } from '../session.ts';
import { useObservable } from '../observable.ts';
import { idsOf } from './register.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { SessionsDialog } from './sessions.tsx';

const SCOPES: readonly (readonly [Scope, string])[] = [
  ['instance', 'register instances, do everything with its own, and speak for their agents'],
  ['send', 'send messages'],
  ['read', 'look at everything'],
  ['admin', 'everything, and keys'],
];

/** How often the page asks again, because the feed has no events about keys. */
const AGAIN_MS = 10_000;

type KeyState = 'in use' | 'expired' | 'revoked';

function stateOf({ revoked_at, expires_at }: ApiKey): KeyState {
  if (revoked_at !== null) return 'revoked';
  return expires_at !== null && Date.parse(expires_at) <= Date.now() ? 'expired' : 'in use';
}

const COLUMNS: Column<ApiKey>[] = [
  {
    head: 'Key',
    sortBy: ({ name, key_id }) => name ?? key_id,
    cell: (key) => (
      <span class="named">
        <Mark kind={stateOf(key) === 'in use' ? 'good' : 'off'} />
        <span class="named-text">
          <Foreign class="named-name">{key.name ?? 'Unnamed'}</Foreign>
          <span class="named-id">{key.key_id}</span>
        </span>
        {stateOf(key) !== 'in use' && <span class="tag">{stateOf(key)}</span>}
      </span>
    ),
  },
  { head: 'Scopes', is_wide: true, cell: ({ scopes }) => <span class="clip">{scopes.join(', ')}</span> },
  {
    head: 'Last used',
    is_number: true,
    sortBy: ({ last_used_at }) => last_used_at,
    cell: ({ last_used_at }) => <Ago at={last_used_at} />,
  },
  {
    head: 'Created',
    is_wide: true,
    is_number: true,
    sortBy: ({ created_at }) => created_at,
    cell: ({ created_at }) => <Ago at={created_at} />,
  },
];

export function Keys({ key_id }: { key_id: string | null }): JSX.Element {
  const [is_making, setMaking] = useState(false);
  useAsked('new', () => setMaking(may('admin')));
  const [is_looking, setLooking] = useState(false);
  // The list may still be loading when the dialog opens, so it cannot say whether a key is the first key.
  const is_open = useObservable(session)?.state === 'open';
  const { rows, problem, is_complete, more, again } = useList(
    'keys',
    (page) => client.listKeys(page),
    (key) => key.key_id,
    () => false,
  );
  usePoll(again, AGAIN_MS);
  return (
    <Page
      title="Keys"
      actions={
        <>
          {rows !== null && rows.length > 0 && (
            <button type="button" class="button" onClick={() => setLooking(true)}>
              Sessions
            </button>
          )}
          <button type="button" class="button primary" onClick={() => setMaking(true)}>
            <Icon name="plus" /> Make a key
          </button>
        </>
      }
      detail={key_id !== null && <KeyDetail key={key_id} key_id={key_id} onChanged={again} />}
    >
      {rows === null && problem === null && <Skeleton />}
      {problem !== null && !rows?.length && <Failure problem={problem} again={again} />}
      {rows?.length === 0 && problem === null && (
        <Empty title="No keys yet: everybody who reaches this address may do everything">
          <p>
            The first key ends that for good, and must be an admin key. Save its token: without the token nobody gets
            in.
          </p>
        </Empty>
      )}
      {rows !== null && rows.length > 0 && (
        <Rows
          label="Keys"
          kind="keys"
          problem={problem}
          again={again}
          list="keys"
          rows={rows}
          columns={COLUMNS}
          idOf={(key) => key.key_id}
          href={(key) => addressOf(['keys', key.key_id])}
          nameOf={(key) => `Open the key ${key.name ?? key.key_id}`}
          selected={key_id}
          is_complete={is_complete}
          more={more}
        />
      )}
      {is_looking && <SessionsDialog onClose={() => setLooking(false)} />}
      {is_making && <MakeDialog is_first={is_open} onClose={() => setMaking(false)} onMade={again} />}
    </Page>
  );
}

function KeyDetail({ key_id, onChanged }: { key_id: string; onChanged: () => void }): JSX.Element {
  // The list may not have loaded the key yet.
  const { value, problem, again } = useQuery(`key ${key_id}`, () => client.getKey(key_id));
  usePoll(again, AGAIN_MS);
  return (
    <Detail
      title={<Foreign>{value?.name ?? key_id}</Foreign>}
      label={`Key ${key_id}`}
      back="/keys"
      back_label="Close the key"
    >
      {value === null && (problem === null ? <Skeleton /> : <Failure problem={problem} again={again} />)}
      {value !== null && (
        <KeyBody
          api_key={value}
          again={() => {
            again();
            onChanged();
          }}
        />
      )}
    </Detail>
  );
}

function KeyBody({ api_key, again }: { api_key: ApiKey; again: () => void }): JSX.Element {
  const { key_id, name, scopes, meeting_ids, instance_id, revoked_at, expires_at } = api_key;
  const { previous_token_expires_at, earlier_tokens_expire_at } = api_key;
  const [asking, setAsking] = useState<'rotate' | 'revoke' | null>(null);
  const close = (): void => setAsking(null);
  return (
    <>
      <div class="detail-block">
        <Facts
          facts={[
            ['Key id', <Id id={key_id} what="the key id" />],
            ['State', stateOf(api_key)],
            ['Scopes', scopes.join(', ')],
            ['Meetings', meeting_ids === null ? 'all' : <Foreign>{meeting_ids.join(', ')}</Foreign>],
            ['Instances', instance_id === null ? 'those that it registers' : <Foreign>{instance_id}</Foreign>],
            ['Last used', <Ago at={api_key.last_used_at} />],
            ['Created', <At at={api_key.created_at} />],
            ['Expires', expires_at === null ? 'never' : <At at={expires_at} />],
            ...(revoked_at === null ? [] : [['Revoked', <At at={revoked_at} />] as const]),
            ...(previous_token_expires_at === null
              ? []
              : [['Previous token ends', <Ago at={previous_token_expires_at} />] as const]),
            ...(earlier_tokens_expire_at === undefined
              ? []
              : [['Earlier tokens end', <Times at={earlier_tokens_expire_at} />] as const]),
          ]}
        />
        {revoked_at === null && (
          <div class="button-row">
            <button type="button" class="button" onClick={() => setAsking('rotate')}>
              Rotate…
            </button>
            <button type="button" class="button dangerous" onClick={() => setAsking('revoke')}>
              Revoke…
            </button>
          </div>
        )}
      </div>
      {asking === 'rotate' && <RotateDialog key_id={key_id} onClose={close} onRotated={again} />}
      {asking === 'revoke' && (
        <Dialog title={`Revoke ${name ?? key_id}?`} onClose={close}>
          <Form
            action="Revoke"
            is_dangerous
            onSubmit={async () => {
              await inThisSession(client.revokeKey(key_id));
              close();
              notify('Revoked: the token is refused from now on.');
              again();
            }}
          >
            <p>Clients that use it are refused at once. This cannot be undone.</p>
          </Form>
        </Dialog>
      )}
    </>
  );
}

interface RotateDialogProps {
  key_id: string;
  onClose: () => void;
  onRotated: () => void;
}

function RotateDialog({ key_id, onClose, onRotated }: RotateDialogProps): JSX.Element {
  const [overlap, setOverlap] = useState(OVERLAP_DEFAULT);
  const rotate = async (): Promise<void> => {
    const rotating = client.rotateKey(key_id, { overlap_seconds: Number(overlap) });
    await showOnce(refusedInWords('token', rotating), drawingToken(), onClose);
    onRotated();
  };
  return (
    <Dialog title="Rotate the key" onClose={onClose}>
      <Form
        action="Make a new token"
        when_lost={`The service does not respond, so the key may have a new token that nobody saw. Make another one${overlap === '0' ? '.' : ': each earlier token works until its own end.'}`}
        onSubmit={rotate}
      >
        <OverlapField
          what="token"
          hint="Time to give everybody who uses it the new one."
          value={overlap}
          onChange={setOverlap}
        />
      </Form>
    </Dialog>
  );
}

function Times({ at }: { at: readonly string[] }): JSX.Element {
  return (
    <>
      {at.map((time, i) => (
        <span key={time}>
          {i > 0 && ', '}
          <Ago at={time} />
        </span>
      ))}
    </>
  );
}

const drawingToken =
  (onClosed?: () => void) =>
  ({ token }: ApiKeyWithToken) =>
  (onSaved: () => void): JSX.Element => <TokenDialog token={token} onSaved={onSaved} onClosed={onClosed} />;

interface TokenDialogProps {
  token: string;
  onSaved: () => void;
  onClosed: (() => void) | undefined;
}

function TokenDialog({ token, onSaved, onClosed }: TokenDialogProps): JSX.Element {
  useEffect(() => onClosed, []);
  return (
    <SecretDialog title="Save this token" what="the token" secret={token} onClose={onSaved}>
      Programs send it as a bearer token, and people sign in with it.
    </SecretDialog>
  );
}

interface MakeDialogProps {
  is_first: boolean;
  onClose: () => void;
  onMade: () => void;
}

const KEY_LOST =
  'The service does not respond, so there may be a key whose token nobody saw. Make another one, and revoke that one.';
const FIRST_LOST =
  'The service does not respond, so it may have made the key, and nobody saw its token. Try again. If the service asks for a key then, stop it, and make another key with convoke keys create --scope admin --data and the directory of its data.';

function MakeDialog({ is_first, onClose, onMade }: MakeDialogProps): JSX.Element {
  const [name, setName] = useState('');
  const [scopes, setScopes] = useState<readonly Scope[]>(is_first ? ['admin'] : ['instance', 'send']);
  const [meetings, setMeetings] = useState('');
  const [instance_id, setInstance] = useState('');
  const [expires, setExpires] = useState('');
  const make = async (): Promise<void> => {
    if (scopes.length === 0) throw new ConvokeError('failed', 'Choose at least one scope.');
    const meeting_ids = idsOf(meetings);
    const making = client.createKey({
      scopes: [...scopes],
      ...(name !== '' && { name }),
      ...(meeting_ids.length > 0 && { meeting_ids }),
      ...(instance_id !== '' && { instance_id }),
      ...(expires !== '' && { expires_at: new Date(expires).toISOString() }),
    });
    const closed = Promise.withResolvers<void>();
    const { token } = await showOnce(making, drawingToken(closed.resolve), onClose);
    if (is_first) {
      // After the first key, this page needs a session: sign in with that key.
      await signIn(token).then(
        () => notify('From now on a key is needed; you are signed in with this one.'),
        showProblem,
      );
      await closed.promise;
    }
    onMade();
  };
  // Until the page has signed in, which may fail, the service refuses its requests. Such a refusal must not end the
  // session, and with that the notice that says why.
  const submit = (): Promise<void> => (is_first ? changingSession(make) : make());
  return (
    <Dialog title={is_first ? 'The first key' : 'Make a key'} onClose={onClose}>
      <Form action="Make the key" when_lost={is_first ? FIRST_LOST : KEY_LOST} onSubmit={submit}>
        {is_first && <p>From now on every request needs a key. The first key must be an admin key without an end.</p>}
        <TextField label="Name" value={name} onChange={setName} placeholder="laptop of Anna" />
        <fieldset class="checks">
          <legend>Scopes</legend>
          {SCOPES.map(([scope, text]) => (
            <label key={scope}>
              <input
                type="checkbox"
                checked={scopes.includes(scope)}
                disabled={is_first}
                onChange={({ currentTarget }) =>
                  setScopes(currentTarget.checked ? [...scopes, scope] : scopes.filter((each) => each !== scope))
                }
              />
              <strong>{scope}</strong> <span class="faint">{text}</span>
            </label>
          ))}
        </fieldset>
        {!is_first && (
          <>
            <TextField
              label="Only in these meetings"
              value={meetings}
              onChange={setMeetings}
              is_code
              hint="Ids with commas between. Empty: in all."
            />
            <TextField
              label="Only this instance"
              value={instance_id}
              onChange={setInstance}
              is_code
              hint="Empty: any."
            />
            <TextField
              label="Expires"
              value={expires}
              onChange={setExpires}
              type="datetime-local"
              hint="Empty: never."
            />
          </>
        )}
      </Form>
    </Dialog>
  );
}
