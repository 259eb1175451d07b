/**
 * Whose step is next. An instance without a backlog never waits for the backlog of another.
 *
 * first:   instances without a backlog, one step each. An accepted message also puts an instance with a backlog
 *          here, for one attempt, so that a small backlog ends soon.
 * waiting: instances with a backlog. A limited number of them have their _turn_ at a time: see
 *          attempts/saturation.ts. A turn ends when the instance has nothing left, or would need another read after
 *          TURN_ATTEMPTS attempts. So no turn ends in the middle of a page, and the attempts of a page share a
 *          connection.
 *
 * The recipients of a wide message (see enqueuer.ts) count as instances with a backlog until they have the message.
 *
 * Instances with a backlog get a share of the steps even when the first list is never empty. They never get more than
 * their share of the attempts and of the memory.
 */
import { Fifo } from '../fifo.ts';
import type { Recipient } from './recipient.ts';

/** After this many steps from the first list, an instance with a backlog takes a step. */
const FIRST_IN_A_ROW = 4;
/** After this many attempts, a turn ends before its next read. Deliveries that were read before are still attempted. */
const TURN_ATTEMPTS = 64;

export class Turns {
  readonly #first = new Fifo<Recipient>();
  /** Instances that have their turn and can take a step. */
  readonly #going = new Fifo<Recipient>();
  readonly #waiting = new Fifo<Recipient>();
  #first_in_a_row = 0;
  /** How many instances have their turn. */
  #in_turn = 0;

  get isEmpty(): boolean {
    return this.#first.length + this.#going.length + this.#waiting.length === 0;
  }

  /** Whether an instance with a backlog is listed. */
  get has_behind(): boolean {
    return this.#going.length + this.#waiting.length > 0;
  }

  get in_turn(): number {
    return this.#in_turn;
  }

  /** The recipient can take a step. */
  list(instance: Recipient): void {
    if (instance.goes_first) {
      if (instance.listed) return;
      instance.listed = true;
      this.#first.push(instance);
    } else if (!instance.listed_behind) {
      instance.listed_behind = true;
      (instance.turn === null ? this.#waiting : this.#going).push(instance);
    }
  }

  /**
   * The recipient whose step is next; undefined when none may take a step.
   *
   * @param may_go whether the instances that have their turn may take a step
   * @param mayBegin whether the turn of this recipient may begin
   */
  next(may_go: boolean, mayBegin: (recipient: Recipient) => boolean): Recipient | undefined {
    const waiting = this.#waiting.peek();
    const has_behind = may_go && (this.#going.length > 0 || (waiting !== undefined && mayBegin(waiting)));
    if (this.#first.length > 0 && !(has_behind && this.#first_in_a_row >= FIRST_IN_A_ROW)) {
      this.#first_in_a_row++;
      const instance = this.#first.shift() as Recipient;
      instance.listed = false;
      return instance;
    }
    this.#first_in_a_row = 0;
    const instance = has_behind ? (this.#going.shift() ?? this.#waiting.shift()) : undefined;
    if (instance === undefined) return undefined;
    instance.listed_behind = false;
    if (!instance.goes_first && instance.turn === null) {
      instance.turn = 0;
      this.#in_turn++;
    }
    return instance;
  }

  /**
   * Whether the turn of an instance ends before its next read. The instance then goes to the end of the waiting list.
   */
  isUp(instance: Recipient): boolean {
    return instance.turn !== null && instance.turn >= TURN_ATTEMPTS;
  }

  /** The turn of a recipient is over. */
  end(instance: Recipient): void {
    if (instance.turn === null) return;
    instance.turn = null;
    this.#in_turn--;
  }
}
