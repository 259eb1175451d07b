import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { RegisteredInstance } from '@convoke/sdk';
import { Choice } from '../parts/choice.tsx';
import { Snippet } from '../parts/copy.tsx';
import { Dialog, Form, TextField } from '../parts/dialog.tsx';
import { notify } from '../parts/notice.tsx';
import { addressOf, go } from '../router.ts';
import { client, inThisSession } from '../service.ts';
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
    const instance = await inThisSession(client.register({ ...input, ...address }));
    notify(`${instance.instance_name} is registered.`);
    if (way === 'pull' || instance.webhook_secret !== undefined) return setRegistered(instance);
    onClose();
    go(addressOf(['instances', instance.instance_id]));
  };

  if (registered !== null) {
    const show = (): void => {
      onClose();
      go(addressOf(['instances', registered.instance_id]));
    };
    // `connect` makes a secret of its own, so nobody has to copy this secret.
    if (way === 'pull') return <WaitingDialog registered={registered} onClose={show} />;
    return (
      <SecretDialog title="Registered: save this secret" secret={registered.webhook_secret ?? ''} onClose={show}>
        The receiver verifies with it that a push is from this service.
      </SecretDialog>
    );
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

interface SecretDialogProps {
  title: string;
  /** Names the secret for the button that copies it. */
  what?: string;
  secret: string;
  onClose: () => void;
  children: preact.ComponentChildren;
}

/** Shows a secret that is shown only once. */
export function SecretDialog({
  title,
  what = 'the secret',
  secret,
  onClose,
  children,
}: SecretDialogProps): JSX.Element {
  return (
    <Dialog title={title} onClose={onClose} is_kept>
      <p>{children}</p>
      <Snippet text={secret} what={what} />
      <p class="hint">It is not shown again: copy it now.</p>
      <div class="form-end">
        <button type="button" class="button primary" onClick={onClose}>
          I’ve saved it
        </button>
      </div>
    </Dialog>
  );
}
