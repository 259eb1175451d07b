import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { MeetingInstance } from '@convoke/sdk';
import { Choice } from '../parts/choice.tsx';
import { Dialog, Form, TextField } from '../parts/dialog.tsx';
import { notify } from '../parts/notice.tsx';
import { client, inThisSession } from '../service.ts';
import { durationInWords } from '../format.ts';

type Wake = NonNullable<MeetingInstance['wake']>;
type CatchUp = NonNullable<MeetingInstance['catch_up']>;

const WAKES = [
  ['all', 'Every message'],
  ['targeted', 'Only what names its agents'],
  ['people', 'Only what people say'],
] as const satisfies readonly (readonly [Wake, string])[];

const CATCH_UPS = [
  ['all', 'All that waited'],
  ['latest', 'Only the newest'],
] as const satisfies readonly (readonly [CatchUp, string])[];

/** Up to this many characters fit beside the agents. */
const SHORT_CHARS = 24;

type RuleFields = Pick<MeetingInstance, 'wake' | 'catch_up' | 'max_age_s'>;

/** The messages that a membership leaves out, in words. A click opens the choices. */
export function Rules({ member }: { member: MeetingInstance }): JSX.Element {
  const [is_open, setOpen] = useState(false);
  const { instance_name } = member;
  const words = rulesOf(member);
  const is_long = words.length > SHORT_CHARS;
  return (
    <>
      <button
        type="button"
        class={is_long ? 'bare text member-rules is-long' : 'bare text member-rules'}
        onClick={() => setOpen(true)}
      >
        {words}
        <span class="unseen">: change what {instance_name} gets</span>
      </button>
      {is_open && <RulesDialog member={member} onClose={() => setOpen(false)} />}
    </>
  );
}

function rulesOf({ wake = 'all', catch_up = 'all', max_age_s = 0 }: RuleFields): string {
  const words: string[] = [];
  if (wake !== 'all') words.push(wake === 'targeted' ? 'what names it' : 'what people say');
  if (catch_up === 'latest') words.push('after being away the newest');
  if (max_age_s > 0) words.push(`nothing older than ${durationInWords(max_age_s * 1000)}`);
  return words.length === 0 ? 'Gets everything' : `Gets ${words.join(', ')}`;
}

function RulesDialog(props: { member: MeetingInstance; onClose: () => void }): JSX.Element {
  const { onClose } = props;
  /** The rules as they were when the dialog opened. Others may change them meanwhile, and their changes stay. */
  const [member] = useState(props.member);
  const { instance_id, meeting_id, instance_name } = member;
  const [wake, setWake] = useState<Wake>(member.wake ?? 'all');
  const [catch_up, setCatchUp] = useState<CatchUp>(member.catch_up ?? 'all');
  const [age, setAge] = useState(String(member.max_age_s ?? 0));
  const save = async (): Promise<void> => {
    // The service refuses any other text than a number, with an error.
    const rules = { wake, catch_up, max_age_s: Number(age) };
    const { wake: old_wake = 'all', catch_up: old_catch_up = 'all', max_age_s: old_age = 0 } = member;
    const old_rules = { wake: old_wake, catch_up: old_catch_up, max_age_s: old_age };
    const isChanged = ([name]: [string, unknown]): boolean =>
      rules[name as keyof typeof rules] !== old_rules[name as keyof typeof rules];
    const changedOf = (all: object): object => Object.fromEntries(Object.entries(all).filter(isChanged));
    if (Object.entries(rules).some(isChanged)) {
      const changed = await inThisSession(client.updateMembership(meeting_id, instance_id, changedOf(rules)));
      notify(`${instance_name}: ${rulesOf(changed)}.`, {
        undo: () => client.updateMembership(meeting_id, instance_id, changedOf(old_rules)),
      });
    }
    onClose();
  };
  return (
    <Dialog title={`What ${instance_name} gets`} onClose={onClose}>
      <Form action="Save" onSubmit={save}>
        <p>Pushed in this meeting:</p>
        <Choice label="Pushed in this meeting" options={WAKES} value={wake} onChange={setWake} />
        <p>After its machine was away:</p>
        <Choice label="After its machine was away" options={CATCH_UPS} value={catch_up} onChange={setCatchUp} />
        <TextField
          label="Not older than, in seconds"
          value={age}
          onChange={setAge}
          is_required
          hint="0: of any age. A message that is older when it is next is cancelled."
        />
        <p class="hint">The rest stays in the history; the next push says how many messages it missed.</p>
      </Form>
    </Dialog>
  );
}
