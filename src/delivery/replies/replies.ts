import { Problem } from '../../domain/problem.ts';
import { type ReadReply, type Reply, repliesIn } from '../../domain/reply.ts';
import { type Replier, type ReplyRefusal, replyRefusal, replyStanding } from '../../domain/reply_token.ts';
import type { Accepted } from '../../store/contract/messages.ts';
import { StoreError } from '../../store/store_error.ts';
import type { Acceptor, Send } from '../accept/acceptor.ts';
import type { Clock } from '../clock.ts';
import type { Observer, ReplyResult } from '../observer.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';
import type { Registrations } from '../lanes/registrations.ts';
import type { AnsweredPart, PushResult } from '../transport/transport.ts';
import { replySend } from './reply_send.ts';

/**
 * The most responses whose replies are being stored, and the most characters of their bodies. At one of these limits,
 * no attempt starts, and no pull may bring the response of a runtime. Attempts in flight may still add responses.
 */
const STORING_MAX = 2_000;
const STORING_CHARS_MAX = 32 << 20;
const RETRY_MS = 500;

/**
 * Replies with the same idempotency key always have the same fingerprint, so the second one counts as a repetition of
 * the first. An agent that gets a push again may write another text, and its first text counts.
 */
const FINGERPRINT = '';

export interface RepliesParts {
  clock: Clock;
  observer: Pick<Observer, 'replied' | 'storageFailed'>;
  acceptor: Pick<Acceptor, 'store' | 'hasRoomFor'>;
  registrations: Pick<Registrations, 'read'>;
  max_message_bytes: number;
}

/** A reply, and its place among the replies of its delivery. The place is a part of its idempotency key. */
type PlacedReply = ReadReply & { place: string };

/** A response whose replies are being stored. */
interface Storing {
  delivery: LaneDelivery;
  read: PlacedReply[];
  /** The instance as it was when the attempt began. */
  replier: Replier;
  /** The characters of the bodies. The text of a reply is a part of a body, and keeps the whole body in memory. */
  chars: number;
  /** Whether this node no longer delivers to the instance. Then the node that delivers to it makes the push again. */
  isLost: () => boolean;
}

/** How a try to store a reply ended; null: it has to be tried again. */
type Tried = Exclude<Accepted['kind'], 'locked'> | ReplyRefusal | null;

/**
 * Sends the replies in responses. A delivery counts as delivered when its replies are stored; until then its lane
 * waits.
 *
 * After a crash before the delivery is settled, the push is made again, and its response has replies again. The
 * idempotency key of a reply is made of the delivery and the place in the response. So the replies have the same keys
 * again, and no reply is stored twice.
 */
export class Replies {
  readonly #clock: Clock;
  readonly #observer: Pick<Observer, 'replied' | 'storageFailed'>;
  readonly #acceptor: Pick<Acceptor, 'store' | 'hasRoomFor'>;
  readonly #registrations: Pick<Registrations, 'read'>;
  readonly #max_message_bytes: number;
  #storing = 0;
  #storing_chars = 0;
  #has_given_up = false;
  #onIdle: (() => void) | null = null;

  constructor({ clock, observer, acceptor, registrations, max_message_bytes }: RepliesParts) {
    this.#clock = clock;
    this.#observer = observer;
    this.#acceptor = acceptor;
    this.#registrations = registrations;
    this.#max_message_bytes = max_message_bytes;
  }

  /**
   * Whether too many replies wait to be stored. Then no attempt may start, and no pull may bring the response of a
   * runtime.
   */
  get isFull(): boolean {
    return this.#storing >= STORING_MAX || this.#storing_chars >= STORING_CHARS_MAX;
  }

  /** Responses whose replies are being stored. */
  get storing(): number {
    return this.#storing;
  }

  /**
   * Stores the replies in the response to a push. Returns at once when there is none.
   *
   * @param replier the instance as it was when the attempt began
   * @param isLost whether this node no longer delivers to the instance
   * @returns a text that says which replies were not sent, empty when all were sent; null when this node gave up on
   * storing the replies, and the push has to be made again
   */
  take(
    delivery: LaneDelivery,
    { kept_body, answered }: PushResult,
    replier: Replier,
    isLost: () => boolean,
  ): string | Promise<string | null> {
    if (kept_body !== undefined && 'lost' in kept_body) {
      this.#observer.replied('response', 'refused');
      return `${kept_body.lost}; a reply in it was not sent`;
    }
    const agents = JSON.parse(delivery.target_agents) as string[];
    const parts = answered ?? (kept_body === undefined ? [] : [{ agents, body: kept_body.text }]);
    const read = parts.flatMap((part) => this.#readPart(part, agents));
    for (const { kind } of read) if (kind === 'refused') this.#observer.replied('response', 'refused');
    if (read.every(({ kind }) => kind === 'refused')) return inWords(read);
    const chars = parts.reduce((sum, { body }) => sum + body.length, 0);
    return this.#storeAll({ delivery, read, replier, chars, isLost });
  }

  /**
   * Reads the replies of one request. An agent with a request of its own also has places of its own, so its places do
   * not depend on the answers of other agents.
   */
  #readPart({ agents, body }: AnsweredPart, all_agents: readonly string[]): PlacedReply[] {
    const prefix = agents.length < all_agents.length ? `${agents[0]}:` : '';
    return repliesIn(body, { agents, max_message_bytes: this.#max_message_bytes }).map(({ position, ...reply }) => ({
      ...reply,
      place: `${prefix}${position}`,
    }));
  }

  async #storeAll(storing: Storing): Promise<string | null> {
    this.#storing++;
    this.#storing_chars += storing.chars;
    try {
      const stored = await this.#storedOf(storing);
      return stored === null ? null : inWords(stored);
    } finally {
      this.#storing--;
      this.#storing_chars -= storing.chars;
      if (this.#storing === 0) this.#onIdle?.();
    }
  }

  /** Tries until all replies are stored or refused; null when this node gives up. */
  async #storedOf({ delivery, read, replier, isLost }: Storing): Promise<ReadReply[] | null> {
    const results: ReadReply[] = [...read];
    let left = [...read.keys()].filter((i) => read[i]?.kind === 'reply');
    for (;;) {
      const sends = left.map((i) => {
        const { reply, place } = read[i] as { reply: Reply; place: string };
        const idempotency = { key: `${delivery.delivery_id}:${place}`, fingerprint: FINGERPRINT };
        return replySend(delivery, reply, delivery.trace, idempotency);
      });
      const tried = await this.#tryToStore(delivery.instance_id, replier, sends);
      for (const [k, kind] of tried.entries()) {
        if (kind === null) continue;
        const why = NOT_STORED[kind];
        if (why !== undefined) results[left[k] as number] = { kind: 'refused', why };
        this.#observer.replied('response', resultOf(kind));
      }
      left = left.filter((_, k) => tried[k] === null);
      if (left.length === 0) return results;
      if (this.#has_given_up || isLost()) return null;
      await new Promise<void>((resolve) => void this.#clock.after(RETRY_MS, resolve));
      if (this.#has_given_up || isLost()) return null;
    }
  }

  /**
   * Stores replies in one transaction, so that no reply is stored before an earlier one.
   *
   * An attempt may take ten minutes. So the row is read first, because the instance may have changed since the attempt
   * began, and memory does not know yet what another node changed.
   */
  async #tryToStore(instance_id: string, replier: Replier, sends: readonly Send[]): Promise<Tried[]> {
    const refusal = await this.#refusalOf(instance_id, replier);
    if (refusal !== null) return sends.map(() => (refusal === 'unknown' ? null : refusal));
    if (!this.#acceptor.hasRoomFor(sends)) return sends.map(() => null);
    return Promise.all(
      sends.map(async (send, i) => {
        try {
          const { kind } = await this.#acceptor.store(send, i > 0);
          return kind === 'locked' ? null : kind;
        } catch (error) {
          // A Problem says that the service has no room now, which is no failure of the storage.
          if (!(error instanceof Problem)) this.#observer.storageFailed(error);
          return null;
        }
      }),
    );
  }

  /** Why the instance may not reply now; null when it may. `unknown`: the storage failed. */
  async #refusalOf(instance_id: string, replier: Replier): Promise<ReplyRefusal | 'damaged' | 'unknown' | null> {
    try {
      const row = await this.#registrations.read(instance_id);
      if (!(row instanceof StoreError)) return replyRefusal(row, (standing) => standing === replyStanding(replier));
      this.#observer.storageFailed(row);
      return 'damaged';
    } catch (error) {
      this.#observer.storageFailed(error);
      return 'unknown';
    }
  }

  /** Resolves when nothing is being stored. Call it once, when no attempt is in flight. */
  async idle(): Promise<void> {
    if (this.#storing === 0) return;
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve;
    });
  }

  /** Makes no more tries, because the process ends. */
  giveUp(): void {
    this.#has_given_up = true;
  }
}

/** Why a reply was refused for good. */
const NOT_STORED: Partial<Record<NonNullable<Tried>, string>> = {
  off: 'the instance was deleted or disabled, or may not reply any more',
  changed: 'the instance has another owner or another address by now',
  refused: 'its agent is not in the meeting any more, or the message that it answers is removed',
  damaged: 'a row that it needs is damaged; the log of the service says which',
};

function resultOf(kind: NonNullable<Tried>): ReplyResult {
  if (kind === 'accepted') return 'stored';
  return kind in NOT_STORED ? 'refused' : 'repeated';
}

/** Says which replies were not sent, and why; empty when all were. */
function inWords(read: readonly ReadReply[]): string {
  const refused = read.flatMap((each, i) => (each.kind === 'refused' ? [{ why: each.why, number: i + 1 }] : []));
  if (refused.length === 0) return '';
  if (read.length === 1) return `the reply was not sent: ${refused[0]?.why}`;
  return `of ${read.length} replies, ${refused.length} were not sent: ${refused
    .slice(0, REFUSED_NAMED_MAX)
    .map(({ why, number }) => `reply ${number}: ${why}`)
    .join('; ')}`;
}

/** How many refused replies the detail of an attempt lists at most, because every attempt stores its detail. */
const REFUSED_NAMED_MAX = 3;
