import { Tally } from '../domain/history.ts';
import { INSTANCE_STEP_S, type InstanceColumns, INSTANCES_MAX, StepsOfInstances } from '../domain/instance_history.ts';
import { packedTexts } from '../domain/packed_texts.ts';
import { BROADCAST_BYTES_MAX } from '../store/contract/cluster.ts';
import type { Clock, Timer } from './clock.ts';
import type { AttemptEvent } from './observer.ts';
import type { HistoryParts } from './history.ts';

const TOPIC = 'history.instances';
const REMOVED = 'history.removed';
/** How long the results of attempts gather before they are counted and broadcast together. */
const GATHERED_MS = 10_000;

/** Times are milliseconds since the epoch, on the wall clock. */
export interface InstanceHistoryRead extends Omit<InstanceColumns, 'first_s'> {
  counting_since: number;
  starts_at: number;
  ends_at: number;
  step_s: number;
}

/**
 * The results of the last day's pushes, for each instance. Memory has room for INSTANCES_MAX instances: those with the
 * latest attempts. In a cluster, each node broadcasts its counts every 10 s, so that every node has the history of
 * every instance.
 */
export class InstanceHistory {
  readonly #clock: Clock;
  readonly #cluster: HistoryParts['cluster'];
  readonly #steps: StepsOfInstances;
  #gathered = new Map<string, Tally>();
  /** The instances that were removed last, each with the steady time of its removal: at most INSTANCES_MAX. */
  readonly #removed = new Map<string, number>();
  #timer: Timer | null = null;

  constructor({ clock, cluster }: HistoryParts) {
    this.#clock = clock;
    this.#cluster = cluster;
    this.#steps = new StepsOfInstances(Math.floor(clock.now() / 1000));
  }

  attempted({ instance_id, attempt, state, accepted_at }: AttemptEvent, wall_ms: number): void {
    const removed_at = this.#removed.get(instance_id) ?? -Infinity;
    // The message was accepted before its instance was removed. Another owner may have the id now.
    if (wall_ms - accepted_at >= this.#clock.now() - removed_at) return;
    let tally = this.#gathered.get(instance_id);
    if (tally === undefined) {
      if (this.#gathered.size >= INSTANCES_MAX) this.#count();
      tally = new Tally();
      this.#gathered.set(instance_id, tally);
      this.#timer ??= this.#clock.after(GATHERED_MS, () => this.#count());
    }
    tally.attempted(attempt.outcome, state, wall_ms - accepted_at);
  }

  #count(): void {
    this.#timer?.cancel();
    this.#timer = null;
    const gathered = this.#gathered;
    this.#gathered = new Map();
    const second = Math.floor(this.#clock.now() / 1000);
    for (const [instance_id, tally] of gathered) this.#steps.add(instance_id, second, tally);
    if (this.#cluster === null) return;
    const texts = [...gathered].map(([instance_id, { text }]) => `[${JSON.stringify(instance_id)},${text}]`);
    for (const text of packedTexts(texts, BROADCAST_BYTES_MAX)) this.#cluster.broadcast(TOPIC, text).catch(() => {});
  }

  /** Forgets an instance, here and on the other nodes: its id may get another owner, who must not see its counts. */
  removed(instance_id: string): void {
    this.#forget(instance_id);
    // When this broadcast gets lost, another node keeps the counts. That node shows a later owner only the counts of
    // the step in which the id is registered again.
    this.#cluster?.broadcast(REMOVED, instance_id).catch(() => {});
  }

  #forget(instance_id: string): void {
    this.#gathered.delete(instance_id);
    this.#steps.forget(instance_id);
    this.#removed.delete(instance_id);
    this.#removed.set(instance_id, this.#clock.now());
    if (this.#removed.size > INSTANCES_MAX) this.#removed.delete(this.#removed.keys().next().value as string);
  }

  /** Another node counted something, or removed an instance. */
  onBroadcast(topic: string, text: string): void {
    if (topic === REMOVED) return this.#forget(text);
    if (topic !== TOPIC) return;
    const second = Math.floor(this.#clock.now() / 1000);
    for (const [instance_id, tally] of talliesIn(text)) this.#steps.add(instance_id, second, tally);
  }

  /**
   * @param registered_at when the instance was registered. Steps before this time are left out: they may be of an
   * earlier instance with this id and another owner
   */
  read(instance_id: string, registered_at: number): InstanceHistoryRead {
    if (this.#gathered.has(instance_id)) this.#count();
    const now = this.#clock.now();
    const ahead_s = Math.round((this.#clock.wall() - now) / 1000);
    const registered_s = Math.floor(registered_at / 1000) - ahead_s;
    const { since_s, first_s, ...columns } = this.#steps.read(instance_id, registered_s, now / 1000);
    const seen = (second: number): number => (second + ahead_s) * 1000;
    const starts_at = seen(first_s);
    return {
      counting_since: seen(since_s),
      starts_at,
      ends_at: starts_at + columns.delivered.length * INSTANCE_STEP_S * 1000,
      step_s: INSTANCE_STEP_S,
      ...columns,
    };
  }

  stop(): void {
    if (this.#timer !== null) this.#count();
  }
}

/** The counts of instances in a text. Leaves out every item that is not such a count. */
function talliesIn(text: string): [string, Tally][] {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    return [];
  }
  if (!Array.isArray(list)) return [];
  return (list as unknown[]).flatMap((item): [string, Tally][] => {
    const [instance_id, pairs] = Array.isArray(item) ? (item as unknown[]) : [];
    const tally = Tally.of(pairs);
    return typeof instance_id === 'string' && tally !== null ? [[instance_id, tally]] : [];
  });
}
