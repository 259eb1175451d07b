/**
 * Whose step is next. An instance without a backlog never waits for the backlog of another.
 *
 * first:   instances without a backlog, one step each. An accepted message also puts an instance with a backlog
 *          here, for one attempt, so that a small backlog ends soon.
 * waiting: instances with a backlog. A limited number of them have their _turn_ at a time: see
 *          attempts/turn_limits.ts. A turn ends when the instance has nothing left, when one of its attempts hangs, or
 *          when the instance would need another read after TURN_ATTEMPTS attempts. So no turn of a receiver that
 *          responds ends in the middle of a page, and the attempts of a page share a connection.
 *
 * The recipients of a wide message (see enqueuer.ts) count as instances with a backlog until they have the message.
 *
 * Instances with a backlog get a share of the steps even when the first list is never empty. They never get more than
 * their share of the attempts and of the memory.
 */
import type { TurnLimits } from '../attempts/turn_limits.ts';
import { Fifo } from '../fifo.ts';
import type { Recipient, TurnKind } from './recipient.ts';

/** After this many steps from the first list, an instance with a backlog takes a step. */
const FIRST_IN_A_ROW = 4;
/** After this many attempts, a turn ends before its next read. Deliveries that were read before are still attempted. */
const TURN_ATTEMPTS = 64;

/** The turns of one kind. */
class Line {
  /** Instances that have their turn and can take a step. */
  readonly going = new Fifo<Recipient>();
  readonly waiting = new Fifo<Recipient>();
  /** How many instances have their turn. */
  in_turn = 0;

  get length(): number {
    return this.going.length + this.waiting.length;
  }

  /** Whether an instance can take a step, or begin its turn. */
  canStep(kind: TurnKind, limits: TurnLimits): boolean {
    if (this.length === 0 || !limits.mayStep(kind)) return false;
    return this.going.length > 0 || limits.mayBegin(this.waiting.peek() as Recipient, this.in_turn);
  }
}

export class Turns {
  readonly #first = new Fifo<Recipient>();
  readonly #trusted = new Line();
  readonly #doubtful = new Line();
  #first_in_a_row = 0;

  get isEmpty(): boolean {
    return this.#first.length + this.#trusted.length + this.#doubtful.length === 0;
  }

  #lineOf(kind: TurnKind): Line {
    return kind === 'trusted' ? this.#trusted : this.#doubtful;
  }

  /** The recipient can take a step. */
  list(recipient: Recipient): void {
    if (recipient.goes_first) {
      if (recipient.listed) return;
      recipient.listed = true;
      this.#first.push(recipient);
    } else if (!recipient.listed_behind) {
      recipient.listed_behind = true;
      if (recipient.attempts_in_turn !== null) return this.#lineOf(recipient.turn_kind).going.push(recipient);
      recipient.turn_kind = recipient.isDoubtful ? 'doubtful' : 'trusted';
      this.#lineOf(recipient.turn_kind).waiting.push(recipient);
    }
  }

  /** The recipient whose step is next; undefined when none may take a step. */
  next(limits: TurnLimits): Recipient | undefined {
    this.#queueEnded();
    if (this.#first.length > 0 && this.#first_in_a_row < FIRST_IN_A_ROW) return this.#takeFirst();
    const line = this.#lineNext(limits);
    if (line === null && this.#first.length > 0) return this.#takeFirst();
    this.#first_in_a_row = 0;
    if (line === null) return undefined;
    const recipient = (line.going.shift() ?? line.waiting.shift()) as Recipient;
    recipient.listed_behind = false;
    if (!recipient.goes_first && recipient.attempts_in_turn === null) {
      recipient.attempts_in_turn = 0;
      recipient.has_ended_in_turn = false;
      line.in_turn++;
    }
    return recipient;
  }

  /** A turn may have ended while its recipient was listed. Then the recipient waits for its next turn, as others do. */
  #queueEnded(): void {
    for (const { going } of [this.#trusted, this.#doubtful]) {
      for (let ended = going.peek(); ended !== undefined && ended.attempts_in_turn === null; ended = going.peek()) {
        going.shift();
        ended.listed_behind = false;
        this.list(ended);
      }
    }
  }

  #takeFirst(): Recipient {
    this.#first_in_a_row++;
    const recipient = this.#first.shift() as Recipient;
    recipient.listed = false;
    return recipient;
  }

  /** The turns from which the next instance with a backlog comes; null when none may take a step. */
  #lineNext(limits: TurnLimits): Line | null {
    if (this.#trusted.canStep('trusted', limits)) return this.#trusted;
    return this.#doubtful.canStep('doubtful', limits) ? this.#doubtful : null;
  }

  /**
   * Whether the turn of an instance ends before its next read. The instance then goes to the end of the waiting list.
   */
  mustYield(recipient: Recipient): boolean {
    return recipient.attempts_in_turn !== null && recipient.attempts_in_turn >= TURN_ATTEMPTS;
  }

  /**
   * Ends a turn that has begun although the recipient can start nothing. Otherwise it would last until an attempt ends
   * that began outside of turns, however long that attempt hangs.
   */
  endUnused(recipient: Recipient): void {
    const { isCurrent, reading } = recipient.registration;
    if (recipient.attempts_in_turn === 0 && recipient.loads === 0 && (isCurrent || reading === 'paused'))
      this.end(recipient);
  }

  /** The turn of a recipient is over. */
  end(recipient: Recipient): void {
    if (recipient.attempts_in_turn === null) return;
    recipient.attempts_in_turn = null;
    this.#lineOf(recipient.turn_kind).in_turn--;
  }
}
