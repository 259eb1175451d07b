import type { LaneMemory } from '../lanes/lane_memory.ts';
import type { Recipient, TurnKind } from '../lanes/recipient.ts';
import type { AttemptLimit } from './attempt_limit.ts';
import type { InFlight } from './in_flight.ts';
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
 * flight, among the results to write, and in memory.
 *
 * Each kind of turn has a limit of its own for turns and for attempts that do not hang, so that the others do not wait
 * for doubtful recipients. All turns share the limit of all attempts, of which doubtful recipients may have two thirds,
 * and the room for results and in memory.
 */
export class TurnLimits {
  readonly #attempt_limit: AttemptLimit;
  readonly #in_flight: InFlight;
  readonly #settlements: Settlements;
  readonly #memory: LaneMemory;

  constructor(attempt_limit: AttemptLimit, in_flight: InFlight, settlements: Settlements, memory: LaneMemory) {
    this.#attempt_limit = attempt_limit;
    this.#in_flight = in_flight;
    this.#settlements = settlements;
    this.#memory = memory;
  }

  /** Adapts the limits to the load of this thread; call this before the other methods. */
  measure(now: number): void {
    this.#attempt_limit.measure(now);
  }

  /** Whether the instances that have a turn of this kind may take a step. */
  mayStep(kind: TurnKind): boolean {
    const { young_max, all_max } = this.#attempt_limit;
    if (this.#in_flight.young(kind) >= young_max || this.#settlements.unsettled >= UNSETTLED_MAX / 2) return false;
    const doubtful = this.#in_flight.of('doubtful');
    if (kind === 'doubtful' && doubtful >= all_max * DOUBTFUL_SHARE) return false;
    return this.#in_flight.of('trusted') + doubtful < all_max;
  }

  /**
   * Whether one more turn may begin. One turn of each kind may always begin, because it delivers and so frees memory.
   * While other turns go on, a turn that reads a backlog begins only when there is free memory.
   *
   * @param in_turn how many instances have a turn of the same kind
   */
  mayBegin(waiting: Recipient, in_turn: number): boolean {
    if (in_turn === 0) return true;
    if (in_turn >= this.#attempt_limit.young_max * TURNS_PER_ATTEMPT) return false;
    return !(waiting.isSpilled && this.#memory.isShareFull);
  }
}
