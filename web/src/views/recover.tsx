/** Sends the missed messages of an instance again. Shows a count first, then the progress, which people can cancel. */
import type { JSX } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Instance, Recovered } from '@convoke/sdk';
import { Dialog, Form, TextField } from '../parts/dialog.tsx';
import { notify, showProblem } from '../parts/notice.tsx';
import { Reading } from '../parts/states.tsx';
import type { FeedEvent } from '../feed.ts';
import { useQuery } from '../queries.ts';
import { client, inThisSession } from '../service.ts';
import { counted } from '../format.ts';

const DAY_MS = 86_400_000;

export function RecoverDialog({ instance, onClose }: { instance: Instance; onClose: () => void }): JSX.Element {
  const { instance_id } = instance;
  const [since, setSince] = useState(() => localTime(Date.now() - DAY_MS));
  const [end, setEnd] = useState('');
  const of = spanOf(since, end);
  const running = useRef<{ is_cancelled: boolean } | null>(null);
  const cancel = (): void => {
    if (running.current !== null) running.current.is_cancelled = true;
  };
  // Leaving the dialog, also with the back button, ends the queuing. The deliveries that are left stay failed.
  useLayoutEffect(() => cancel, []);
  const [progress, setProgress] = useState<Omit<ProgressProps, 'onCancel'> | null>(null);
  const query = useQuery(
    of === null ? null : `recoverable ${instance_id} ${JSON.stringify(of)}`,
    () => client.recover(instance_id, { ...(of as Span), dry_run: true }),
    (event) => event.instance_id === instance_id && mayCount(event),
  );
  const { value } = query;

  const send = async (): Promise<void> => {
    if (of === null) return;
    const run = (running.current = { is_cancelled: false });
    let sent = 0;
    const queue = async (): Promise<void> => {
      // Without an end, deliveries that failed after the dialog was opened are sent too.
      for await (sent of client.recovering(instance_id, of)) {
        setProgress({ queued: sent, found: value });
        if (run.is_cancelled) break;
      }
    };
    try {
      // The count falls while deliveries are queued, so the progress keeps the count of the button.
      setProgress({ queued: 0, found: value });
      await inThisSession(queue());
    } catch (error) {
      // The deliveries that were queued so far stay queued, and the same request queues the others.
      showProblem(error);
      return;
    } finally {
      running.current = null;
      setProgress(null);
    }
    notify(outcomeOf(sent, run.is_cancelled));
    if (!run.is_cancelled) onClose();
  };

  return (
    <Dialog title="Resend what it missed" onClose={onClose}>
      {progress === null ? (
        <Form
          action={value === null || value.recovered === 0 ? 'Resend' : `Resend ${amount(value)}`}
          is_ready={of !== null && value?.recovered !== 0}
          onSubmit={send}
        >
          <TextField label="Failed since" type="datetime-local" value={since} onChange={setSince} is_required />
          <TextField label="Until" type="datetime-local" value={end} onChange={setEnd} hint="Now, when it is empty." />
          <div role="status">
            {of === null && <p class="hint">Choose a time that begins before it ends.</p>}
            {of !== null && <Reading query={query} lines={1} />}
            {of !== null && value !== null && <Estimate found={value} instance={instance} />}
          </div>
        </Form>
      ) : (
        <Progress {...progress} onCancel={cancel} />
      )}
    </Dialog>
  );
}

/** Whether an event may change how many deliveries of its instance have failed. */
function mayCount({ name, sent }: FeedEvent): boolean {
  if (sent?.name === 'delivery.attempted') return sent.data.state === 'failed';
  return name === 'delivery.settled' || name === 'delivery.queued';
}

interface Span {
  since: string;
  until?: string;
}

/** The chosen time; null when the field has none. */
function spanOf(since: string, end: string): Span | null {
  const [from_ms, to_ms] = [Date.parse(since), end === '' ? Infinity : Date.parse(end)];
  if (Number.isNaN(from_ms) || Number.isNaN(to_ms) || from_ms > to_ms) return null;
  const until = to_ms === Infinity ? {} : { until: new Date(to_ms).toISOString() };
  return { since: new Date(from_ms).toISOString(), ...until };
}

/** The time in the form of a field for local time, to the minute. */
function localTime(at_ms: number): string {
  const at = new Date(at_ms);
  return new Date(at_ms - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

function amount({ recovered, at_least = false }: Recovered): string {
  return `${at_least ? 'at least ' : ''}${counted(recovered, 'delivery', 'deliveries')}`;
}

function Estimate({ found, instance }: { found: Recovered; instance: Instance }): JSX.Element {
  const { missed } = found;
  const pending = instance.pending_deliveries;
  const is_paused = !(instance.is_active && instance.webhook_enabled);
  return (
    <>
      <p>
        {found.recovered === 0
          ? `Nothing failed in that time.${pending > 0 && !is_paused ? ` ${counted(pending, 'pending delivery goes', 'pending deliveries go')} out without it.` : ''}`
          : `${capital(amount(found))} failed in that time. ${found.recovered === 1 ? 'It goes out' : 'They go out one after the other,'} beside new messages, under the same webhook-id as before.`}
        {is_paused && found.recovered > 0 && ' The instance is paused: nothing goes out until you resume it.'}
      </p>
      {missed !== undefined && missed.messages > 0 && (
        <p class="hint">
          {`${missed.at_least ? 'At least ' : ''}${counted(missed.messages, 'message')} arrived while it was paused. What arrives then is not queued for it, so it cannot be resent. It is in the history of its meetings.`}
        </p>
      )}
    </>
  );
}

interface ProgressProps {
  queued: number;
  found: Recovered | null;
  onCancel: () => void;
}

function Progress({ queued, found, onCancel }: ProgressProps): JSX.Element {
  const all = Math.max(found?.recovered ?? 0, queued, 1);
  return (
    <div class="form">
      <p role="status">{`${queued.toLocaleString('en')} of ${found === null ? '…' : amount({ ...found, recovered: all })} queued`}</p>
      <progress max={all} value={queued} aria-label="Queued again" />
      <div class="form-end">
        <button type="button" class="button" onClick={onCancel}>
          Cancel
        </button>
      </div>
    </div>
  );
}

function outcomeOf(sent: number, is_cancelled: boolean): string {
  if (is_cancelled)
    return `Cancelled. ${counted(sent, 'delivery was', 'deliveries were')} queued by then and will be sent.`;
  return sent === 0 ? 'Nothing failed in that time.' : `${counted(sent, 'delivery', 'deliveries')} will be sent again.`;
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
