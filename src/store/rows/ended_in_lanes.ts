import type { EndedInLane, LaneKey } from '../contract/deliveries.ts';

/** Counts deliveries that ended together, lane by lane. */
export class EndedInLanes {
  readonly #lanes = new Map<string, EndedInLane>();

  add({ instance_id, meeting_id }: LaneKey, count: number): void {
    const key = keyOf({ instance_id, meeting_id });
    const known = this.#lanes.get(key);
    if (known === undefined) this.#lanes.set(key, { instance_id, meeting_id, count });
    else known.count += count;
  }

  countOf(lane: LaneKey): number {
    return this.#lanes.get(keyOf(lane))?.count ?? 0;
  }

  /** The lanes in the order of their keys. The order is the same on every engine. */
  list(): EndedInLane[] {
    return [...this.#lanes].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, lane]) => lane);
  }
}

function keyOf({ instance_id, meeting_id }: LaneKey): string {
  return JSON.stringify([instance_id, meeting_id]);
}
