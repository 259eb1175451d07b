import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Dialog, Form, TextField } from '../parts/dialog.tsx';
import { client } from '../service.ts';
import { idsOf } from './register.tsx';

/** Lets an instance join a meeting: from the page of the instance, or from the page of the meeting. */
export function JoinDialog(props: {
  instance_id?: string;
  meeting_id?: string;
  agent_ids?: readonly string[];
  onClose: () => void;
}): JSX.Element {
  const [instance_id, setInstance] = useState(props.instance_id ?? '');
  const [meeting_id, setMeeting] = useState(props.meeting_id ?? '');
  const { agent_ids: offered = [] } = props;
  const [agents, setAgents] = useState(offered.join(', '));
  const join = async (): Promise<void> => {
    // An id may contain a comma, so splitting the text at its commas could break the id. If nobody changed the text,
    // the offered ids are used as they are.
    let agent_ids = agents === offered.join(', ') ? [...offered] : idsOf(agents);
    if (agent_ids.length === 0) agent_ids = (await client.getInstance(instance_id)).agent_ids;
    await client.joinMeeting({ instance_id, meeting_id, agent_ids });
    props.onClose();
  };
  return (
    <Dialog title="Join a meeting" onClose={props.onClose}>
      <Form action="Join" onSubmit={join}>
        <TextField
          label="Instance id"
          value={instance_id}
          onChange={setInstance}
          is_required
          is_code
          is_fixed={props.instance_id !== undefined}
        />
        <TextField
          label="Meeting id"
          value={meeting_id}
          onChange={setMeeting}
          is_required
          is_code
          is_fixed={props.meeting_id !== undefined}
          placeholder="standup-42"
          hint={props.meeting_id === undefined ? 'A meeting exists as soon as somebody joins it.' : undefined}
        />
        <TextField
          label="Agents"
          value={agents}
          onChange={setAgents}
          is_code
          hint="Separated by commas. Empty: all agents of the instance."
        />
      </Form>
    </Dialog>
  );
}
