/** Changes a registered instance. Sends only the fields that the user changed. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Instance, UpdateInstanceInput } from '@convoke/sdk';
import { doesPull } from '../parts/connection.tsx';
import { Dialog, Field, Form, SelectField, TextField } from '../parts/dialog.tsx';
import { notify } from '../parts/notice.tsx';
import { client, inThisSession } from '../service.ts';
import { idsOf } from './register.tsx';
import { is_portal } from '../portal.ts';

interface EditDialogProps {
  instance: Instance;
  /** Called when a change was taken back. */
  again: () => void;
  onClose: () => void;
}

const SUCCESSES = [
  ['200', 'only 200'],
  ['2xx', 'every 2xx'],
] as const;

const REPLIES = [
  ['no', 'not sent anywhere'],
  ['yes', 'sent in the meeting'],
] as const;

/** The time that the service uses when a registration names none. */
const TIMEOUT_S = 5;

export function EditDialog({ instance: latest, again, onClose }: EditDialogProps): JSX.Element {
  /** The instance as it was when the dialog opened. Others may change it meanwhile, and their changes stay. */
  const [instance] = useState(latest);
  const pulls = doesPull(instance);
  const [name, setName] = useState(instance.instance_name);
  const listed = instance.agent_ids.join(', ');
  const [agents, setAgents] = useState(listed);
  const [url, setUrl] = useState(instance.webhook_url);
  const [headers, setHeaders] = useState('');
  const [timeout, setTimeout] = useState(String(timeoutOf(instance)));
  const [successes, setSuccesses] = useState<string>(instance.success_statuses);
  const [replies, setReplies] = useState(instance.replies === true ? 'yes' : 'no');

  const save = async (): Promise<void> => {
    const changes: UpdateInstanceInput = {};
    if (name !== instance.instance_name) changes.instance_name = name;
    if (agents !== listed) changes.agent_ids = agentsOf(agents, instance);
    if (url !== instance.webhook_url) changes.webhook_url = url;
    if (headers.trim() !== '') changes.webhook_headers = headersOf(headers);
    if (Number(timeout) !== timeoutOf(instance)) changes[pulls ? 'ack_timeout_s' : 'timeout_s'] = Number(timeout);
    if (successes !== instance.success_statuses) changes.success_statuses = successes === '2xx' ? '2xx' : '200';
    if ((replies === 'yes') !== (instance.replies === true)) changes.replies = replies === 'yes';
    if (Object.keys(changes).length > 0) {
      const changed = await inThisSession(client.updateInstance(instance.instance_id, changes));
      notify(savedInWords(instance, changed), { undo: undoOf(instance, changes, changed, again) });
    }
    onClose();
  };

  return (
    <Dialog title={`Edit ${instance.instance_name || instance.instance_id}`} onClose={onClose}>
      <Form action="Save" onSubmit={save}>
        <TextField label="Name" value={name} onChange={setName} is_required />
        {!is_portal && (
          <TextField
            label="Agents"
            value={agents}
            onChange={setAgents}
            is_code
            hint="Separated by commas. The agents in its meetings stay as they are."
          />
        )}
        {!pulls && !is_portal && (
          <TextField
            label="Webhook URL"
            value={url}
            onChange={setUrl}
            type="url"
            is_required
            is_code
            hint="Pending deliveries go to the new address. Headers are dropped when that address is on another server."
          />
        )}
        {!is_portal && (
          <Field
            label="Headers"
            hint={`One on a line, as in authorization: Bearer … They replace all of its headers${headerNames(instance)}. Leave it empty to keep them.`}
          >
            {(id, hint_id) => (
              <textarea
                id={id}
                class="input code"
                rows={2}
                spellcheck={false}
                autocomplete="off"
                aria-describedby={hint_id}
                value={headers}
                onInput={(event) => setHeaders(event.currentTarget.value)}
              />
            )}
          </Field>
        )}
        <TextField
          label={pulls ? 'Time for a result, in seconds' : 'Time for an answer, in seconds'}
          value={timeout}
          onChange={setTimeout}
        />
        <SelectField
          label="Delivered when it answers"
          hint="Other statuses count as failures."
          options={SUCCESSES}
          value={successes}
          onChange={setSuccesses}
        />
        {!is_portal && (
          <SelectField
            label="What it answers is"
            hint="Only answers in the form of a reply are sent."
            options={REPLIES}
            value={replies}
            onChange={setReplies}
          />
        )}
      </Form>
    </Dialog>
  );
}

/** @throws Error when the text cannot say where an id ends */
function agentsOf(text: string, { agent_ids }: Instance): string[] {
  const unclear = agent_ids.find((agent_id) => agent_id.includes(','));
  if (unclear !== undefined)
    throw new Error(`The id of the agent ${unclear} has a comma, so this field cannot change the agents. Use the API.`);
  return idsOf(text);
}

function timeoutOf({ transport, ack_timeout_s = 30, timeout_s = TIMEOUT_S }: Instance): number {
  return transport === 'pull' ? ack_timeout_s : timeout_s;
}

function headerNames({ webhook_header_names }: Instance): string {
  return webhook_header_names.length === 0 ? '' : ` (${webhook_header_names.join(', ')})`;
}

function headersOf(text: string): Record<string, string> {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  return Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':');
      if (colon < 1) throw new Error(`Write headers as name: value; this line has no colon: ${line}`);
      return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
    }),
  );
}

/**
 * A function that takes the changes back; null when headers were replaced or dropped, because nobody can read the old
 * headers.
 */
function undoOf(
  before: Instance,
  changes: UpdateInstanceInput,
  after: Instance,
  again: () => void,
): (() => Promise<void>) | null {
  const is_dropped = before.webhook_header_names.some((name) => !after.webhook_header_names.includes(name));
  if (changes.webhook_headers !== undefined || is_dropped) return null;
  const old: UpdateInstanceInput = {
    instance_name: before.instance_name,
    agent_ids: before.agent_ids,
    webhook_url: before.webhook_url,
    timeout_s: timeoutOf(before),
    ack_timeout_s: timeoutOf(before),
    success_statuses: before.success_statuses,
    replies: before.replies === true,
  };
  const changed = Object.entries(old).filter(([name]) => name in changes);
  return () => client.updateInstance(before.instance_id, Object.fromEntries(changed)).then(again);
}

function savedInWords(before: Instance, after: Instance): string {
  const dropped = before.webhook_header_names.filter((name) => !after.webhook_header_names.includes(name));
  return dropped.length === 0 ? 'Saved.' : `Saved. It is sent no longer: ${dropped.join(', ')}.`;
}
