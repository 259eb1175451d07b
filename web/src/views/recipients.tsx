/** The choice of the recipients: everybody in the meeting, or some agents. */
import type { JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import { isForInputMethod } from '../keyboard.ts';
import { Foreign } from '../parts/foreign.tsx';

/** Up to this many agents have a button each. For more, people type a name. */
const BUTTONS_MAX = 8;
/** The most names that are suggested. */
const SUGGESTED_MAX = 50;

interface RecipientsProps {
  /** The agents in the meeting. */
  agent_ids: readonly string[];
  /** Empty: everybody. An agent that is not in the meeting is marked, and can only be removed. */
  chosen: readonly string[];
  onChange: (chosen: readonly string[]) => void;
  /**
   * Called after a choice with the pointer, because the person types the message next. After a choice with the keyboard
   * the focus stays.
   */
  onPointed: () => void;
}

export function Recipients({ agent_ids, chosen, onChange, onPointed }: RecipientsProps): JSX.Element {
  const absent = chosen.filter((agent_id) => !agent_ids.includes(agent_id));
  const shown = agent_ids.length > BUTTONS_MAX ? chosen : [...agent_ids, ...absent];
  const toggle = (agent_id: string): void =>
    onChange(chosen.includes(agent_id) ? chosen.filter((id) => id !== agent_id) : [...chosen, agent_id]);
  const onClick = (event: MouseEvent): void => {
    const { target } = event;
    if (event.detail > 0 && target instanceof Element && target.closest('button') !== null) onPointed();
  };
  return (
    <div class="composer-to" role="group" aria-label="To" onClick={onClick}>
      <button type="button" class="chip" aria-pressed={chosen.length === 0} onClick={() => onChange([])}>
        Everybody
      </button>
      {shown.map((agent_id) => (
        <button
          key={agent_id}
          type="button"
          class={absent.includes(agent_id) ? 'chip is-absent' : 'chip'}
          aria-pressed={chosen.includes(agent_id)}
          onClick={() => toggle(agent_id)}
        >
          <Foreign>{agent_id}</Foreign>
          {absent.includes(agent_id) && <span class="unseen"> (not in this meeting)</span>}
        </button>
      ))}
      {agent_ids.length > BUTTONS_MAX && (
        <OneMore
          agent_ids={agent_ids.filter((agent_id) => !chosen.includes(agent_id))}
          onChoose={(agent_id) => onChange([...chosen, agent_id])}
        />
      )}
    </div>
  );
}

/** A field that completes the name of an agent. */
function OneMore({ agent_ids, onChoose }: { agent_ids: readonly string[]; onChoose: (agent_id: string) => void }) {
  const [typed, setTyped] = useState('');
  const list = useId();
  const wanted = typed.toLowerCase();
  const fitting = agent_ids.filter((agent_id) => agent_id.toLowerCase().includes(wanted)).slice(0, SUGGESTED_MAX);
  const choose = (agent_id: string): void => {
    setTyped('');
    onChoose(agent_id);
  };
  return (
    <>
      <input
        class="input chip-input"
        aria-label="Add an agent"
        placeholder={`One of ${agent_ids.length} agents…`}
        list={list}
        value={typed}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => {
          const { value } = event.currentTarget;
          // A suggestion that the person chose. A typed name may be the beginning of a longer name.
          const is_chosen = !(event instanceof InputEvent) || event.inputType === 'insertReplacementText';
          if (is_chosen && agent_ids.includes(value)) choose(value);
          else setTyped(value);
        }}
        onKeyDown={(event) => {
          if (event.key !== 'Enter' || isForInputMethod(event)) return;
          event.preventDefault();
          const [only] = fitting;
          if (agent_ids.includes(typed)) choose(typed);
          else if (fitting.length === 1 && only !== undefined) choose(only);
        }}
      />
      <datalist id={list}>
        {fitting.map((agent_id) => (
          <option key={agent_id} value={agent_id} />
        ))}
      </datalist>
    </>
  );
}
