import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { AuditAction, AuditEntry } from '@convoke/sdk';
import { newestFirst, useList, usePoll } from '../queries.ts';
import { Id } from '../parts/copy.tsx';
import { Mark } from '../parts/mark.tsx';
import { Detail, Facts, Filter, Page } from '../parts/page.tsx';
import { type Column, Rows } from '../parts/rows.tsx';
import { Searched } from '../parts/searched.tsx';
import { Empty, Failure, Skeleton } from '../parts/states.tsx';
import { Ago, At } from '../parts/time.tsx';
import { addressOf, filterBy, usePlace } from '../router.ts';
import { client } from '../service.ts';
import { Foreign } from '../parts/foreign.tsx';

const ACTIONS: readonly AuditAction[] = [
  'instance.register',
  'instance.update',
  'instance.hand_over',
  'instance.delete',
  'instance.rotate_secret',
  'instance.recover',
  'instance.webhook_test',
  'meeting.join',
  'meeting.leave',
  'membership.update',
  'meeting.update',
  'delivery.retry',
  'delivery.drop',
  'key.create',
  'key.rotate',
  'key.revoke',
  'portal_link.create',
  'invite.create',
  'invite.redeem',
  'invite.revoke',
  'session.begin',
  'session.end',
  'encryption.reencrypt',
  'demo.start',
  'demo.stop',
  'authenticate',
  'service.start',
  'service.backup',
  'service.import',
  'audit.prune',
];

/** How often the page asks again. Most entries have no event of the feed: sign-ins, keys, invites, refusals. */
const AGAIN_MS = 10_000;
/** How many of the latest entries are loaded to find the one in the address. */
const LOOKED_THROUGH_MAX = 5_000;

const COLUMNS: Column<AuditEntry>[] = [
  {
    head: 'Action',
    sortBy: ({ action }) => action,
    cell: ({ action, outcome, code }) => (
      <span class="named">
        <Mark kind={outcome === 'done' ? 'good' : 'bad'} />
        <span class="named-text">
          <span class="named-name">{action}</span>
          {code !== null && <span class="named-id">{code}</span>}
        </span>
      </span>
    ),
  },
  {
    head: 'What',
    sortBy: ({ target_kind, target_id }) => target_id ?? target_kind,
    cell: ({ target_kind, target_id }) => <Foreign class="clip">{target_id ?? target_kind}</Foreign>,
  },
  {
    head: 'Who',
    is_wide: true,
    sortBy: ({ principal }) => principal,
    cell: ({ principal }) => <Foreign class="clip code">{principal}</Foreign>,
  },
  {
    head: 'From',
    is_wide: true,
    sortBy: ({ address }) => address,
    cell: ({ address }) => <Foreign class="clip code">{address ?? '–'}</Foreign>,
  },
  { head: 'When', is_number: true, sortBy: ({ seq }) => seq, cell: ({ at }) => <Ago at={at} /> },
];

export function Audit({ seq }: { seq: string | null }): JSX.Element {
  const { query } = usePlace();
  const action = ACTIONS.find((each) => each === query.get('action'));
  const key_id = query.get('key_id') ?? '';
  const instance_id = query.get('instance_id') ?? '';
  // A search reads many entries, so the page does not repeat it by itself.
  const is_search = action !== undefined || (key_id !== '' && instance_id !== '');
  const list = `audit ${JSON.stringify([action, key_id, instance_id])}`;
  const { rows, problem, is_complete, searched_to, more, again } = useList(
    list,
    (page) =>
      client.listAudit({
        ...page,
        ...(action !== undefined && { action }),
        ...(key_id !== '' && { key_id }),
        ...(instance_id !== '' && { instance_id }),
      }),
    (entry) => String(entry.seq),
    (event) => !is_search && event.name.startsWith('instance.'),
    newestFirst<AuditEntry>(({ at }) => at),
  );
  usePoll(() => is_search || again(), AGAIN_MS);
  const chosen = rows?.find((entry) => String(entry.seq) === seq);
  const is_looking = seq !== null && chosen === undefined && !is_complete && (rows?.length ?? 0) < LOOKED_THROUGH_MAX;
  const has_failed = problem !== null;
  useEffect(() => {
    if (is_looking) more();
  }, [is_looking, rows?.length, searched_to, has_failed]);
  const leading = (to?: number): string => addressOf(to === undefined ? ['audit'] : ['audit', String(to)], query);
  return (
    <Page
      title="Audit"
      tools={
        <>
          <label class="filter">
            <span class="unseen">Action</span>
            <select
              class="input"
              data-filter="first"
              value={action ?? ''}
              onChange={(event) => filterBy({ action: event.currentTarget.value })}
            >
              <option value="">Every action</option>
              {ACTIONS.map((each) => (
                <option key={each} value={each}>
                  {each}
                </option>
              ))}
            </select>
          </label>
          <Filter label="Key id" name="key_id" value={key_id} />
          <Filter label="Instance id" name="instance_id" value={instance_id} />
        </>
      }
      detail={
        chosen !== undefined ? (
          <EntryDetail key={chosen.seq} entry={chosen} back={leading()} />
        ) : (
          seq !== null &&
          rows !== null && (
            <Detail title="Entry" label={`Entry ${seq}`} back={leading()} back_label="Close the entry">
              {is_looking ? <Skeleton /> : <Missing />}
            </Detail>
          )
        )
      }
    >
      {rows === null && problem === null && <Skeleton />}
      {problem !== null && !rows?.length && <Failure problem={problem} again={again} />}
      {rows !== null && searched_to !== null && !is_complete && <Searched to={searched_to} more={more} />}
      {rows?.length === 0 && problem === null && is_complete && (
        <Empty title="No entries match">
          <button
            type="button"
            class="button"
            onClick={() => filterBy({ action: null, key_id: null, instance_id: null })}
          >
            Clear the filter
          </button>
        </Empty>
      )}
      {rows !== null && rows.length > 0 && (
        <Rows
          label="Audit log"
          kind="audit"
          problem={problem}
          again={again}
          list={list}
          rows={rows}
          columns={COLUMNS}
          idOf={(entry) => String(entry.seq)}
          href={(entry) => leading(entry.seq)}
          nameOf={(entry) => `Open entry ${entry.seq}, ${entry.action}`}
          selected={seq}
          is_complete={is_complete}
          more={more}
        />
      )}
    </Page>
  );
}

function Missing(): JSX.Element {
  return (
    <Empty title="There is no such entry">
      <p>
        It is not among the latest {LOOKED_THROUGH_MAX.toLocaleString('en')} entries that match the filters. Other
        filters may find it.
      </p>
    </Empty>
  );
}

function EntryDetail({ entry, back }: { entry: AuditEntry; back: string }): JSX.Element {
  const details = Object.entries(entry.details);
  return (
    <Detail title={entry.action} label={`Entry ${entry.seq}`} back={back} back_label="Close the entry">
      <div class="detail-block">
        <Facts
          facts={[
            ['Entry', String(entry.seq)],
            ['When', <At at={entry.at} />],
            ['Outcome', entry.code === null ? entry.outcome : `${entry.outcome}: ${entry.code}`],
            ['Who', <Id id={entry.principal} what="who it was" />],
            ['From', entry.address === null ? '–' : <Id id={entry.address} what="the address" />],
            ['What', entry.target_id === null ? entry.target_kind : <Id id={entry.target_id} what="the target's id" />],
            ...details.map(
              ([name, value]) =>
                [name, <Foreign>{Array.isArray(value) ? value.join(', ') : String(value)}</Foreign>] as const,
            ),
            ['Hash', <Id id={entry.hash} what="the hash" />],
            ['Hash before', <Id id={entry.prev_hash} what="the hash before" />],
          ]}
        />
      </div>
    </Detail>
  );
}
