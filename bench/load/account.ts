/** Which message has arrived at which receiver, for measurements in which some do not arrive. */
import { type Distribution, Samples } from '../measure/figures.ts';
import type { SentMessage } from './load.ts';
import { COUNT_DIGITS } from './request.ts';

export interface Account {
  /** How many pushes the accepted messages should have become. */
  expected: number;
  not_arrived: number;
  /** Pushes of a message that the receiver already had. */
  repeated: number;
  /**
   * Milliseconds from the sending of an accepted message to its first arrival. What has not arrived counts with its age:
   * while more than 1 % is missing, the p99 is a lower bound.
   */
  latency_ms: Distribution;
}

/** When a message was sent and arrived, in microseconds: see `nowUs`. */
export interface Slow {
  sent_us: number;
  arrived_us: number;
}

/** Marks the number of a message, see request.ts. */
const COUNT = Buffer.from('"msg-');

export class Arrived {
  /** The times of the first arrivals in microseconds, by message and receiver. */
  readonly #messages = new Map<number, Map<string, number>>();
  #repeated = 0;

  /** @param body contains the body of a push from the offset `from` on */
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
