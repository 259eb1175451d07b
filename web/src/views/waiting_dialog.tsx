import type { JSX } from 'preact';
import type { Instance } from '@convoke/sdk';
import { ConnectionState } from '../parts/connection.tsx';
import { Snippet } from '../parts/copy.tsx';
import { Dialog } from '../parts/dialog.tsx';
import { quoted } from '../format.ts';
import { useQuery } from '../queries.ts';
import { client, session } from '../service.ts';

/** An example of an address: a runtime on its own machine. */
const RUNTIME = 'http://127.0.0.1:9000/convoke';

/** Shows the command to run on the machine of a new instance. The dialog says when that machine has connected. */
export function WaitingDialog({ registered, onClose }: { registered: Instance; onClose: () => void }): JSX.Element {
  const { instance_id, instance_name, agent_ids } = registered;
  const { value } = useQuery(
    `instance ${instance_id}`,
    () => client.getInstance(instance_id),
    (event) => event.instance_id === instance_id,
  );
  const instance = value ?? registered;
  const agents = agent_ids.map((agent_id) => ` --agent ${quoted(agent_id)}`).join('');
  const command =
    `npx convoke connect --instance ${quoted(instance_id)} --name ${quoted(instance_name)}${agents} \\\n` +
    `  --to ${RUNTIME} --url ${location.origin}`;
  return (
    <Dialog title="Registered: connect it" onClose={onClose}>
      <p>
        Run this on the machine that runs the agent. <code>--to</code> is where the agent's runtime listens there.
      </p>
      <Snippet what="the command that connects" text={command} />
      {session.value?.state !== 'open' && (
        <p class="hint">
          It needs a key there, as <code>CONVOKE_API_KEY</code>: the key that owns this instance.
        </p>
      )}
      <p role="status">
        <ConnectionState instance={instance} />
      </p>
      <div class="form-end">
        <button type="button" class="button primary" onClick={onClose}>
          Show the instance
        </button>
      </div>
    </Dialog>
  );
}
