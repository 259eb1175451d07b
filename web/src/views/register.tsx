import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { RegisteredInstance } from '@convoke/sdk';
import { Snippet } from '../parts/copy.tsx';
import { Dialog, Form, TextField } from '../parts/dialog.tsx';
import { notify } from '../parts/notice.tsx';
import { addressOf, go } from '../router.ts';
import { client } from '../service.ts';

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
  const [registered, setRegistered] = useState<RegisteredInstance | null>(null);

  const register = async (): Promise<void> => {
    const agent_ids = idsOf(agents);
    const input = { instance_id, instance_name: instance_name || instance_id, agent_ids, webhook_url };
    const instance = await client.register(input);
    notify(`${instance.instance_name} is registered.`);
    if (instance.webhook_secret !== undefined) return setRegistered(instance);
    onClose();
    go(addressOf(['instances', instance.instance_id]));
  };

  if (registered !== null) {
    return (
      <SecretDialog
        title="Registered: save this secret"
        secret={registered.webhook_secret ?? ''}
        onClose={() => {
          onClose();
          go(addressOf(['instances', registered.instance_id]));
        }}
      >
        The receiver verifies with it that a push is from this service.
      </SecretDialog>
    );
  }
  return (
    <Dialog title="Register an instance" onClose={onClose}>
      <Form action="Register" onSubmit={register}>
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
      </Form>
    </Dialog>
  );
}

interface SecretDialogProps {
  title: string;
  secret: string;
  onClose: () => void;
  children: preact.ComponentChildren;
}

/** Shows something that is shown only once. */
export function SecretDialog({ title, secret, onClose, children }: SecretDialogProps): JSX.Element {
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{children}</p>
      <Snippet text={secret} what="the secret" />
      <p class="hint">It is not shown again: copy it now.</p>
      <div class="form-end">
        <button type="button" class="button primary" onClick={onClose}>
          I’ve saved it
        </button>
      </div>
    </Dialog>
  );
}
