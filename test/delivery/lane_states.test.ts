/** Tests every state that a lane can reach, every event in each state, and what must hold after each event. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Lane } from '../../src/delivery/lanes/lane.ts';
import type { LaneDelivery } from '../../src/delivery/lanes/lane_delivery.ts';

/** How many deliveries one lane gets: enough for a queue, a backlog and a tail. */
const SEQS_MAX = 5;
const EVENTS_MAX = 7;

function deliveryOf(seq: number): LaneDelivery {
  return {
    delivery_id: `dlv_${seq}`,
    message_id: `msg_${seq}`,
    meeting_id: 'm',
    seq,
    instance_id: 'i',
    target_agents: '[]',
    body_head: new Uint8Array(),
    timestamp: '',
    origin: null,
    trace: null,
    accepted_at: 0,
    expires_at: 1,
    attempt_count: 0,
    answered_badly: 0,
    attempts: [],
    next_attempt_at: null,
    is_backlog: false,
    missed: 0,
  };
}

/** A lane, and the table that holds all of its deliveries. */
class Subject {
  readonly lane = new Lane('m', 0);
  /** The pending rows of the lane, by seq. */
  readonly rows = new Set<number>();
  next_seq = 1;
}

type Event = (subject: Subject) => void;

/** What can happen to a lane. An event that its state does not allow throws. */
const EVENTS: Record<string, Event> = {
  accepted(subject) {
    const seq = subject.next_seq++;
    subject.rows.add(seq);
    subject.lane.append(deliveryOf(seq));
  },
  spilled: ({ lane }) => void lane.spill(),
  trimmed({ lane }) {
    lane.backlog?.dropTail();
    const kept = lane.isBusy ? 1 : 0;
    if (lane.queue.length > kept) lane.truncate(kept);
  },
  invalidated({ lane }) {
    EVENTS['trimmed']?.({ lane } as Subject);
    lane.invalidate();
  },
  listed: ({ lane }) => lane.list(),
  stepped({ lane }) {
    lane.unlist();
    if (lane.queue.length > 0) lane.begin('attempting');
    else if (lane.backlog !== null) lane.begin('loading');
  },
  delivered(subject) {
    const { lane } = subject;
    assert.equal(lane.state, 'attempting');
    lane.end();
    subject.rows.delete((lane.queue.shift() as LaneDelivery).seq);
  },
  loaded(subject) {
    const { lane, rows } = subject;
    assert.equal(lane.state, 'loading');
    lane.end();
    const { backlog, last_seq } = lane;
    assert.ok(backlog !== null);
    const page = [...rows].toSorted((a, b) => a - b).filter((seq) => seq > last_seq && seq < backlog.tail_from);
    for (const seq of page) lane.appendRead(deliveryOf(seq));
    lane.joinTail();
  },
};

/** The part of a lane's state that decides what can happen. A number of deliveries counts only as 0, 1 or more. */
function stateOf({ lane }: Subject): string {
  const { state, queue, backlog, tail_length } = lane;
  const some = (count: number): string => (count === 0 ? '0' : count === 1 ? '1' : 'n');
  const on_disk = backlog === null ? 'whole' : `backlog ${some(tail_length)}`;
  return `${state}, queue ${some(queue.length)}, ${on_disk}`;
}

/** Checks what must hold in every state. */
function assertHolds(subject: Subject): void {
  const { lane, rows, next_seq } = subject;
  const { backlog, queue, state } = lane;
  const head = queue.peek()?.seq ?? Infinity;
  assert.equal(lane.isEmpty, queue.length === 0 && backlog === null);
  assert.equal(lane.isBusy, state === 'attempting' || state === 'loading');
  if (state === 'attempting') assert.ok(queue.length > 0, 'an attempt has a head');
  if (state === 'loading') assert.ok(backlog !== null && queue.length === 0, 'a read has a backlog');
  if (state === 'ready') assert.ok(!lane.isEmpty, 'a ready lane has something in it');
  if (backlog === null) {
    assert.equal(queue.length, rows.size, 'a lane without a backlog has all of it in memory');
    if (rows.size > 0) assert.equal(lane.newest_seq, next_seq - 1);
  } else if (lane.tail_length > 0) {
    assert.ok(backlog.tail_from > lane.last_seq, 'the tail follows what is in the queue');
    assert.equal(backlog.tail_to, next_seq - 1, 'the tail has the newest');
  } else assert.equal(backlog.tail_from, Infinity);
  if (rows.size > 0) {
    const first = Math.min(...rows);
    assert.ok(head === Infinity || head === first, 'nothing that is tried follows something that is on disk only');
    if (queue.length === 0 && backlog !== null)
      assert.ok(lane.last_seq < first, 'a read begins before what is pending');
  }
}

/** Applies events to a new lane. Returns null when the last event is not allowed in its state. */
function run(history: readonly string[]): Subject | null {
  const subject = new Subject();
  for (const [i, name] of history.entries()) {
    const { state, generation } = subject.lane;
    try {
      EVENTS[name]?.(subject);
    } catch (error) {
      if (!(error instanceof assert.AssertionError) || i < history.length - 1) throw error;
      assert.equal(subject.lane.state, state, `what is not allowed changes nothing: ${name} in ${state}`);
      return null;
    }
    assert.ok(subject.lane.generation >= generation);
  }
  return subject;
}

describe('a lane', () => {
  const histories = new Map<string, string[]>();
  const transitions = new Map<string, Set<string>>();
  let open: string[][] = [[]];
  for (let events = 0; events < EVENTS_MAX; events++) {
    const next: string[][] = [];
    for (const history of open) {
      for (const name of Object.keys(EVENTS)) {
        const longer = [...history, name];
        const before = stateOf(run(history) as Subject);
        const subject = run(longer);
        if (subject === null || subject.next_seq > SEQS_MAX + 1) continue;
        assertHolds(subject);
        const after = stateOf(subject);
        const from = transitions.get(before) ?? new Set();
        transitions.set(before, from.add(name));
        if (histories.has(after)) continue;
        histories.set(after, longer);
        next.push(longer);
      }
    }
    open = next;
  }

  test('is in one of the states that mean something, and in each of them its promises hold', () => {
    assert.ok(histories.size >= 20 && histories.size <= 4 * 3 * 4, `${histories.size} states are reached`);
    const states = [...histories.keys()];
    assert.ok(states.every((state) => !state.startsWith('loading') || state.includes('queue 0, backlog')));
    assert.ok(states.every((state) => !state.startsWith('attempting') || !state.includes('queue 0')));
    assert.ok(!states.includes('ready, queue 0, whole'));
  });

  for (const [state, allowed] of Object.entries({
    idle: ['listed'],
    ready: ['stepped'],
    attempting: ['delivered'],
    loading: ['loaded'],
  })) {
    test(`that is ${state} takes of all steps only: ${allowed.join(', ')}`, () => {
      const steps = new Set(
        [...transitions].filter(([from]) => from.startsWith(state)).flatMap(([, names]) => [...names]),
      );
      const of_state = [...steps].filter((name) => ['listed', 'stepped', 'delivered', 'loaded'].includes(name));
      assert.deepEqual(of_state, allowed);
    });
  }
});
