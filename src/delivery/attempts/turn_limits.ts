import type { LaneMemory } from '../lanes/lane_memory.ts';
import type { Recipient, TurnKind } from '../lanes/recipient.ts';
import type { InFlight } from './in_flight.ts';
import type { Saturation } from './saturation.ts';
import { type Settlements, UNSETTLED_MAX } from './settlements.ts';

/** The share of the attempts in turns that doubtful instances may have. */
const DOUBTFUL_SHARE = 2 / 3;
/**
 * How many instances have their turn for each attempt that the limit allows: one has its attempt in flight while the
 * next deliveries of another are read.
 */
const TURNS_PER_ATTEMPT = 2;

/**
 * The limits of turns. Recipients with a backlog leave room for recipients without a backlog: among the attempts in
 * flight, among the results to write, and in memory. Doubtful recipients have the same limits again, so that the others
 * do not wait for them.
 */
export class TurnLimits {
  readonly #saturation: Saturation;
  readonly #in_flight: InFlight;
  readonly #settlements: Settlements;
  readonly #memory: LaneMemory;

  constructor(saturation: Saturation, in_flight: InFlight, settlements: Settlements, memory: LaneMemory) {
    this.#saturation = saturation;
    this.#in_flight = in_flight;
    this.#settlements = settlements;
    this.#memory = memory;
  }

  /** Adapts the limits to how busy this thread is; call this before the other methods. */
  measure(now: number): void {
    this.#saturation.measure(now);
  }

  /** Whether the instances that have a turn of this kind may take a step. */
  mayGo(kind: TurnKind): boolean {
    const { attempts_max, attempts_most } = this.#saturation;
    if (this.#in_flight.young(kind) >= attempts_max || this.#settlements.unsettled >= UNSETTLED_MAX / 2) return false;
    const doubtful = this.#in_flight.of('doubtful');
    if (kind === 'doubtful' && doubtful >= attempts_most * DOUBTFUL_SHARE) return false;
    return this.#in_flight.of('trusted') + doubtful < attempts_most;
  }

  /**
   * Whether one more turn may begin. One turn of each kind may always begin, because it delivers and so frees memory.
   * While other turns go on, a turn that reads a backlog begins only when there is free memory.
   *
   * @param in_turn how many instances have a turn of the same kind
   */
  mayBegin(waiting: Recipient, in_turn: number): boolean {
    if (in_turn === 0) return true;
    if (in_turn >= this.#saturation.attempts_max * TURNS_PER_ATTEMPT) return false;
    return !(waiting.isSpilled && this.#memory.isShareFull);
  }
}
