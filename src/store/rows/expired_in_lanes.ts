import type { ExpiredInLane, LaneKey } from '../contract/deliveries.ts';

/** Counts what expired, lane by lane. */
export class ExpiredInLanes {
  readonly #lanes = new Map<string, ExpiredInLane>();

  add({ instance_id, meeting_id }: LaneKey, count: number): void {
    const key = JSON.stringify([instance_id, meeting_id]);
    const known = this.#lanes.get(key);
    if (known === undefined) this.#lanes.set(key, { instance_id, meeting_id, count });
    else known.count += count;
  }

  /** In the order of their keys, the same on every engine. */
  list(): ExpiredInLane[] {
    return [...this.#lanes].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, lane]) => lane);
  }
}
