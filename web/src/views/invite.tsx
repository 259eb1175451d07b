import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { InviteWithLink } from '@convoke/sdk';
import { Snippet } from '../parts/copy.tsx';
import { Dialog, Form, TextField } from '../parts/dialog.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { Icon } from '../parts/icons.tsx';
import { showOnce } from '../parts/secret.tsx';
import { At } from '../parts/time.tsx';
import { client, may } from '../service.ts';
import { idsOf } from './register.tsx';

/** Makes a one-time link for a machine that is to take part in a meeting; for admins. */
export function InviteButton({ meeting_id }: { meeting_id: string }): JSX.Element | null {
  const [is_inviting, setInviting] = useState(false);
  if (!may('admin')) return null;
  return (
    <>
      <button type="button" class="button" onClick={() => setInviting(true)}>
        <Icon name="plus" /> Invite an agent
      </button>
      {is_inviting && <InviteDialog meeting_id={meeting_id} onClose={() => setInviting(false)} />}
    </>
  );
}

function InviteDialog({ meeting_id, onClose }: { meeting_id: string; onClose: () => void }): JSX.Element {
  const [agents, setAgents] = useState('');
  const make = async (): Promise<void> => {
    const making = client.createInvite({ meeting_ids: [meeting_id], agent_ids: idsOf(agents) });
    await showOnce(making, (made) => (onSaved) => <LinkDialog made={made} onClose={onSaved} />, onClose);
  };
  return (
    <Dialog title="Invite an agent" onClose={onClose}>
      <Form action="Make the link" onSubmit={make}>
        <p>
          A one-time link lets a machine take part in <Foreign>{meeting_id}</Foreign>, and nothing else. It connects by
          itself, so it works behind a firewall.
        </p>
        <TextField
          label="Agents"
          value={agents}
          onChange={setAgents}
          is_required
          is_code
          placeholder="anna"
          hint="The agents that the machine runs, separated by commas."
        />
      </Form>
    </Dialog>
  );
}

function LinkDialog({ made, onClose }: { made: InviteWithLink; onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Send this link" onClose={onClose} is_kept>
      <Snippet text={made.link} what="the link" />
      <p>
        It works once, until <At at={made.expires_at} />, and is not shown again: copy it now. It shows its reader what
        to do.
      </p>
      <p class="hint">Or on a machine of yours, with --to and the address where the agent listens:</p>
      <Snippet text={`npx convoke connect ${made.link}`} what="the command" />
      <div class="form-end">
        <button type="button" class="button primary" onClick={onClose}>
          I’ve copied it
        </button>
      </div>
    </Dialog>
  );
}
