/** Notes which message has arrived at which receiver, for measurements in which some messages do not arrive. */
import { type Distribution, Samples } from '../measure/figures.ts';
import type { SentMessage } from './load.ts';
import { COUNT_DIGITS } from './request.ts';

export interface Account {
  /** How many pushes should have arrived for the accepted messages. */
  expected: number;
  not_arrived: number;
  /** Pushes with a message that had already arrived at the receiver. */
  repeated: number;
  /**
   * Milliseconds from the sending of an accepted message to its first arrival at a receiver. A push that has not
   * arrived counts with the time since its message was sent. So while more than 1 % of the pushes are missing, the true
   * p99 is higher.
   */
  latency_ms: Distribution;
}

/** When a message was sent and when it arrived, in microseconds of the clock of `nowUs`. */
export interface Slow {
  sent_us: number;
  arrived_us: number;
}

/** The text before the number of a message: see request.ts. */
const COUNT = Buffer.from('"msg-');

export class Arrived {
  /** The times of the first arrivals in microseconds, by message and receiver. */
  readonly #messages = new Map<number, Map<string, number>>();
  #repeated = 0;

  /** @param body a chunk in which the body of a push begins at the offset `from` */
  note(receiver: string, body: Buffer, from: number, now_us: number): void {
    const at = body.indexOf(COUNT, from) + COUNT.length;
    const count = Number(body.toString('latin1', at, at + COUNT_DIGITS));
    const receivers = this.#messages.get(count) ?? new Map<string, number>();
    this.#messages.set(count, receivers);
    if (receivers.has(receiver)) this.#repeated++;
    else receivers.set(receiver, now_us);
  }

  /** @returns the messages whose last arrival took longest, the slowest first */
  slowest(messages: readonly SentMessage[], most: number): Slow[] {
    return messages
      .map(([count, sent_us]) => ({ sent_us, arrived_us: Math.max(...(this.#messages.get(count)?.values() ?? [0])) }))
      .toSorted((a, b) => b.arrived_us - b.sent_us - (a.arrived_us - a.sent_us))
      .slice(0, most);
  }

  /** @param per_message at how many receivers each message should arrive */
  account(messages: readonly SentMessage[], per_message: number, now_us: number): Account {
    const latency_ms = new Samples();
    let not_arrived = 0;
    for (const [count, sent_us] of messages) {
      const arrived = [...(this.#messages.get(count)?.values() ?? [])];
      for (const at_us of arrived) latency_ms.add((at_us - sent_us) / 1000);
      for (let i = arrived.length; i < per_message; i++) {
        not_arrived++;
        latency_ms.add((now_us - sent_us) / 1000);
      }
    }
    return {
      expected: messages.length * per_message,
      not_arrived,
      repeated: this.#repeated,
      latency_ms: latency_ms.distribution(),
    };
  }
}
