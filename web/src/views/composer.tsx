import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type MeetingInstance, rawJson, type SentMessage } from '@convoke/sdk';
import { errorOf, isAway } from '../queries.ts';
import { doing } from '../parts/notice.tsx';
import { Choice } from '../parts/choice.tsx';
import { client, inThisSession, may } from '../service.ts';
import { filterBy, usePlace } from '../router.ts';
import { counted, some } from '../format.ts';
import { isForInputMethod } from '../keyboard.ts';
import { Foreign } from '../parts/foreign.tsx';
import { type Draft, draftOf, keepDraft, newSend } from '../drafts.ts';
import { Hearers, whyNobody } from './hearers.tsx';
import { Recipients } from './recipients.tsx';

interface ComposerProps {
  meeting_id: string;
  /** The present members of the meeting; null until they are read. */
  members: readonly MeetingInstance[] | null;
  onSent: () => void;
}

/**
 * Sends to everybody in the meeting, or to the chosen agents. The message is from a person, so no agent is left out.
 */
export function Composer(props: ComposerProps): JSX.Element {
  if (may('send')) return <Writing {...props} />;
  return (
    <p class="composer faint">
      Your key {may('instance') ? 'may not send here' : 'is read-only'}; sending needs the send scope.
    </p>
  );
}

function Writing({ meeting_id, members, onSent }: ComposerProps): JSX.Element {
  const [draft, setDraft] = useState(() => draftOf(meeting_id));
  const { text, form, targets } = draft;
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [is_busy, setBusy] = useState(false);
  const agent_ids = [...new Set(members?.flatMap((member) => member.agent_ids))];
  // A chosen agent may have left. It stays chosen: if it were taken out, the message would go to others, at last to
  // everybody.
  const absent = members === null ? [] : targets.filter((agent_id) => !agent_ids.includes(agent_id));
  // A send whose response was lost may be repeated all the same, because it is for the same agents as before.
  const is_refused = absent.length > 0 && draft.begun === null;
  const latest = useRef(draft);
  const box = useRef<HTMLTextAreaElement>(null);
  const write = (changes: Partial<Draft>): void => {
    const changed = (latest.current = { ...latest.current, begun: null, ...changes });
    setDraft(changed);
    keepDraft(meeting_id, changed);
  };
  // The agent that a link names as the recipient; null without such a link. The name is removed from the URL, so that a
  // reload does not choose the agent again.
  const to = usePlace().query.get('to');
  useEffect(() => {
    if (to === null) return;
    write({ targets: [to] });
    box.current?.focus();
    filterBy({ to: null });
  }, [to]);

  const send = async (): Promise<void> => {
    if (is_busy || is_refused || text.trim() === '') return;
    setBusy(true);
    setRefusal(null);
    try {
      const begun = latest.current.begun ?? newSend();
      const { idempotency_key, created_at } = begun;
      const message = form === 'json' ? parsed(text) : { content: text, created_at };
      const options = { idempotency_key, ...(targets.length > 0 && { target_agents: targets }) };
      write({ begun });
      const sent = await inThisSession(client.sendMessage(meeting_id, message, options));
      // A text that a person writes before the response arrives stays.
      if (latest.current.text === text) write({ text: '' });
      onSent();
      // Not awaited: the next message need not wait until the page knows who got this one.
      void doing(sentInWords(sent, targets), (words) => words);
    } catch (error) {
      setRefusal(refusalOf(error));
    } finally {
      setBusy(false);
    }
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== 'Enter' || isForInputMethod(event)) return;
    const is_send = form === 'json' ? event.ctrlKey || event.metaKey : !event.shiftKey;
    if (!is_send) return;
    event.preventDefault();
    void send();
  };
  return (
    <form
      class="composer"
      aria-label="Send a message"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {(agent_ids.length > 0 || absent.length > 0) && (
        <Recipients
          agent_ids={agent_ids}
          chosen={targets}
          onChange={(chosen) => write({ targets: chosen })}
          onPointed={() => box.current?.focus()}
        />
      )}
      <textarea
        ref={box}
        class={form === 'json' ? 'input composer-text code' : 'input composer-text'}
        aria-label="Message"
        aria-describedby="hearers"
        placeholder={form === 'json' ? '{"content": "…"}' : 'Say something'}
        rows={form === 'json' ? 4 : 2}
        value={text}
        spellcheck={form === 'text'}
        onInput={(event) => write({ text: event.currentTarget.value })}
        onKeyDown={onKeyDown}
      />
      {members !== null && !is_refused && <Hearers meeting_id={meeting_id} targets={targets} />}
      {is_refused && (
        <p class="refusal" role="alert">
          <Foreign>{some(absent)}</Foreign> {absent.length === 1 ? 'is' : 'are'} not in this meeting, so nothing is
          sent. Remove {absent.length === 1 ? 'it' : 'them'} from the recipients, or wait until{' '}
          {absent.length === 1 ? 'it joins' : 'they join'}.
        </p>
      )}
      {refusal !== null && !is_refused && (
        <p class="refusal" role="alert">
          {refusal.text}
          {refusal.is_in_doubt && (draft.begun === null ? CHANGED : UNCHANGED)}
        </p>
      )}
      <div class="composer-end">
        <Choice
          label="Written as"
          options={[
            ['text', 'Text'],
            ['json', 'JSON'],
          ]}
          value={form}
          onChange={(chosen) => write({ form: chosen })}
        />
        <span class="faint composer-hint">
          {form === 'json' ? 'Ctrl Enter sends' : 'Enter sends, Shift Enter breaks the line'}
        </span>
        <button type="submit" class="button primary" aria-disabled={is_busy || is_refused || text.trim() === ''}>
          {targets.length === 0 ? 'Send to everybody' : `Send to ${counted(targets.length, 'agent')}`}
        </button>
      </div>
    </form>
  );
}

async function sentInWords(
  { meeting_id, seq, deliveries_queued }: SentMessage,
  targets: readonly string[],
): Promise<string> {
  return deliveries_queued === 0
    ? `No one received #${seq}: ${await whyNobody(meeting_id, targets)}. It is in the history.`
    : `Sent #${seq} to ${counted(deliveries_queued, 'instance')}.`;
}

/** The message is sent as it was written: numbers and the order of keys survive. */
function parsed(text: string): object {
  return rawJson(text);
}

/** Why a message was not sent, as far as the page knows. */
interface Refusal {
  text: string;
  /** Whether the message may have been sent all the same. */
  is_in_doubt: boolean;
}

const UNKNOWN = 'so it is not known whether your message was sent.';
const UNCHANGED = ' Send it again: it will not be sent twice.';
const CHANGED = ' It has changed since then, so it is another message now.';

function refusalOf(error: unknown): Refusal {
  if (error instanceof SyntaxError) return { text: `Not valid JSON: ${error.message}`, is_in_doubt: false };
  if (error instanceof TypeError) return { text: 'A message must be a JSON object, in braces.', is_in_doubt: false };
  const found = errorOf(error);
  const { code, detail, status } = found;
  if (isAway(found)) return { text: `The service does not respond, ${UNKNOWN}`, is_in_doubt: true };
  if (status === null || (status >= 400 && status < 500)) return { text: detail, is_in_doubt: false };
  // The response of a proxy says nothing about the service behind it.
  if (code === 'unexpected_response' || code === 'internal_error')
    return { text: `The service failed, ${UNKNOWN}`, is_in_doubt: true };
  // The detail says whether the storage may have the message.
  return { text: detail, is_in_doubt: true };
}
