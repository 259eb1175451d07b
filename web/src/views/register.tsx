import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { RegisteredInstance } from '@convoke/sdk';
import { Choice } from '../parts/choice.tsx';
import { Dialog, Form, TextField } from '../parts/dialog.tsx';
import { notify } from '../parts/notice.tsx';
import { SecretDialog, showOnce } from '../parts/secret.tsx';
import { addressOf, go } from '../router.ts';
import { client } from '../service.ts';
import { WaitingDialog } from './waiting_dialog.tsx';

/** Reads ids from text: separated by commas or on lines of their own. */
export function idsOf(text: string): string[] {
  return text
    .split(/[,\n]/)
    .map((id) => id.trim())
    .filter((id) => id !== '');
}

export function RegisterDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const [instance_id, setId] = useState('');
  const [instance_name, setName] = useState('');
  const [agents, setAgents] = useState('');
  const [webhook_url, setUrl] = useState('');
  const [way, setWay] = useState<'webhook' | 'pull'>('webhook');
  const [registered, setRegistered] = useState<RegisteredInstance | null>(null);

  const register = async (): Promise<void> => {
    const agent_ids = idsOf(agents);
    const input = { instance_id, instance_name: instance_name || instance_id, agent_ids };
    const address = way === 'pull' ? { transport: 'pull' as const } : { transport: 'webhook' as const, webhook_url };
    await showOnce(
      client.register({ ...input, ...address }),
      // `connect` makes a secret of its own, so nobody has to copy this secret.
      (instance) => (way === 'pull' || instance.webhook_secret === undefined ? null : drawSecret(instance)),
      (instance) => {
        notify(`${instance.instance_name} is registered.`);
        if (way === 'pull' || instance.webhook_secret === undefined) setRegistered(instance);
        else onClose();
      },
    );
  };

  if (registered !== null) {
    const show = (query: Record<string, string>): void => {
      onClose();
      go(addressOf(['instances', registered.instance_id], query));
    };
    if (way === 'pull') return <WaitingDialog registered={registered} onClose={() => show({})} />;
    return <AgainDialog onClose={() => show({})} onRotate={() => show({ rotate: '' })} />;
  }
  return (
    <Dialog title="Register an instance" onClose={onClose}>
      <Form
        action="Register"
        when_lost="The service does not respond, so the instance may be registered. Register it again. If no secret is shown then, rotate its secret."
        onSubmit={register}
      >
        <Choice
          label="How pushes reach it"
          options={[
            ['webhook', 'It has a webhook'],
            ['pull', 'It connects by itself'],
          ]}
          value={way}
          onChange={setWay}
        />
        <TextField
          label="Instance id"
          value={instance_id}
          onChange={setId}
          is_required
          is_code
          placeholder="laptop-anna"
          hint="If the id exists already, its name, agents and address are overwritten."
        />
        <TextField label="Name" value={instance_name} onChange={setName} placeholder="Anna's laptop" />
        <TextField
          label="Agents"
          value={agents}
          onChange={setAgents}
          is_code
          placeholder="anna-planner, anna-coder"
          hint="The ids of the agents on this machine, separated by commas."
        />
        {way === 'webhook' && (
          <TextField
            label="Webhook URL"
            value={webhook_url}
            onChange={setUrl}
            type="url"
            is_required
            is_code
            placeholder="http://127.0.0.1:9000/convoke"
            hint="The address at which the receiver accepts pushes."
          />
        )}
      </Form>
    </Dialog>
  );
}

const drawSecret =
  ({ instance_id, webhook_secret = '' }: RegisteredInstance) =>
  (onSaved: () => void): JSX.Element => {
    const show = (): void => {
      onSaved();
      go(addressOf(['instances', instance_id]));
    };
    return (
      <SecretDialog title="Registered: save this secret" secret={webhook_secret} onClose={show}>
        The receiver verifies with it that a push is from this service.
      </SecretDialog>
    );
  };

/**
 * After a registration that made no secret, because the instance had one. The response to an earlier request, which had
 * the secret, may have been lost.
 */
function AgainDialog({ onClose, onRotate }: { onClose: () => void; onRotate: () => void }): JSX.Element {
  return (
    <Dialog title="This instance existed already" onClose={onClose}>
      <p>Its name, agents and address are what you entered now. Its secret is as before, and is not shown again.</p>
      <p class="hint">If nobody has saved the secret, rotate it.</p>
      <div class="form-end">
        <button type="button" class="button" onClick={onRotate}>
          Rotate the secret…
        </button>
        <button type="button" class="button primary" onClick={onClose}>
          Show the instance
        </button>
      </div>
    </Dialog>
  );
}
