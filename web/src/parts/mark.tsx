/** States as marks: each has a shape of its own, so that nobody needs to tell the colours apart. */
import type { JSX } from 'preact';
import type { Delivery, Health } from '@convoke/sdk';
import { HEALTH_WORDS } from '../format.ts';

export type MarkKind = 'good' | 'waiting' | 'held' | 'bad' | 'off' | 'warning';

const SHAPES: Record<MarkKind, JSX.Element> = {
  good: (
    <>
      <circle class="mark-fill" cx="7" cy="7" r="6" />
      <path class="mark-cut" d="M4.2 7.2 6.2 9.2 9.9 5" />
    </>
  ),
  waiting: (
    <>
      <circle class="mark-line" cx="7" cy="7" r="5.2" />
      <path class="mark-line" d="M7 4.2V7l1.9 1.3" />
    </>
  ),
  held: (
    <>
      <rect class="mark-line" x="1.8" y="1.8" width="10.4" height="10.4" rx="2" />
      <path class="mark-line" d="M4.9 4.9l4.2 4.2M9.1 4.9 4.9 9.1" />
    </>
  ),
  bad: (
    <>
      <rect class="mark-fill" x="1.4" y="1.4" width="11.2" height="11.2" rx="2" />
      <path class="mark-cut" d="M4.7 4.7l4.6 4.6M9.3 4.7 4.7 9.3" />
    </>
  ),
  warning: (
    <>
      <path class="mark-fill" d="M7 1 13.3 12.4H.7z" />
      <path class="mark-cut" d="M7 5v3.2M7 10.3v.01" />
    </>
  ),
  off: (
    <>
      <circle class="mark-line" cx="7" cy="7" r="5.2" />
      <path class="mark-line" d="M4.5 7h5" />
    </>
  ),
};

const OF_STATE: Record<Delivery['state'], MarkKind> = {
  delivered: 'good',
  pending: 'waiting',
  failed: 'bad',
  cancelled: 'off',
};

const OF_HEALTH: Record<Health, MarkKind> = { up: 'good', unknown: 'off', failing: 'warning', down: 'bad' };

export function Mark({ kind }: { kind: MarkKind }): JSX.Element {
  return (
    <svg class={`mark mark-${kind}`} viewBox="0 0 14 14" aria-hidden="true" focusable="false">
      {SHAPES[kind]}
    </svg>
  );
}

interface StateProps {
  state: Delivery['state'];
  waiting_for?: Delivery['waiting_for'];
}

/** Deliveries that wait for their machine have a mark of their own. */
export function StateMark({ state, waiting_for = null }: StateProps): JSX.Element {
  const is_held = waiting_for === 'back_off' || waiting_for === 'connection';
  return <Mark kind={is_held ? 'held' : OF_STATE[state]} />;
}

export function State({ state, waiting_for = null }: StateProps): JSX.Element {
  return (
    <span class={`state state-${OF_STATE[state]}`}>
      <StateMark state={state} waiting_for={waiting_for} />
      {state}
    </span>
  );
}

interface HealthProps {
  health: Health;
  /** A paused instance gets no pushes, so its health does not matter now. */
  is_paused?: boolean;
}

const PAUSED = 'paused';

export function HealthMark({ health, is_paused = false }: HealthProps): JSX.Element {
  return (
    <span class="health-mark">
      <Mark kind={is_paused ? 'off' : OF_HEALTH[health]} />
      <span class="unseen">{is_paused ? PAUSED : HEALTH_WORDS[health]}</span>
    </span>
  );
}

export function HealthState({ health, is_paused = false }: HealthProps): JSX.Element {
  const kind = is_paused ? 'off' : OF_HEALTH[health];
  return (
    <span class={`state state-${kind}`}>
      <Mark kind={kind} />
      {is_paused ? PAUSED : HEALTH_WORDS[health]}
    </span>
  );
}
