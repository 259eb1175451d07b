/** Counts the pushes that arrive at the receivers of a measurement, and how long each took. */
import { type Distribution, nowUs, Samples } from '../measure/figures.ts';

export interface Received {
  pushes: number;
  /** The time of the first arrival in microseconds of the clock of `nowUs`; 0 when nothing has arrived. */
  first_us: number;
  last_us: number;
  /** First attempts that arrived after an attempt of a later message of the same lane. */
  out_of_order: number;
  /** Pushes that repeat the newest message of their lane. */
  repeated: number;
  hung: number;
  /** Milliseconds from the sending of the message to its arrival. */
  latency_ms: Distribution;
}

export interface Arrival {
  /** When the message was sent: see `sentUs`. Null when the message does not contain the time. */
  sent_us: number | null;
  /** The instance and the meeting, as one text. */
  lane: string;
  /** The seq of the message; null when the push has none: then its order is not checked. */
  seq: number | null;
  is_first_attempt: boolean;
}

/** The text before the time of sending in a message: see request.ts. */
const SENT_AT = Buffer.from('"sent_at":"');
const SENT_AT_DIGITS = 16;
const ZERO = 0x30;

/** @returns when the message in the body of a push was sent, in microseconds; null when the body has no such time */
export function sentUs(body: Buffer, from: number): number | null {
  const at = body.indexOf(SENT_AT, from);
  if (at === -1) return null;
  let sent_us = 0;
  for (let i = at + SENT_AT.length, end = i + SENT_AT_DIGITS; i < end; i++) sent_us = sent_us * 10 + body[i]! - ZERO;
  return sent_us;
}

export class Arrivals {
  readonly #samples = new Samples();
  /** The highest seq by lane. */
  #last_seqs = new Map<string, number>();
  #received = nothingReceived();
  /** Requests that get no response, so that the sender waits. */
  hung = 0;

  note({ sent_us, lane, seq, is_first_attempt }: Arrival): void {
    const received = this.#received;
    const now_us = nowUs();
    received.pushes++;
    if (received.first_us === 0) received.first_us = now_us;
    received.last_us = now_us;
    if (sent_us !== null) this.#samples.add((now_us - sent_us) / 1000);
    if (seq === null) return;
    const last_seq = this.#last_seqs.get(lane) ?? 0;
    if (seq > last_seq) this.#last_seqs.set(lane, seq);
    else if (seq === last_seq) received.repeated++;
    else if (is_first_attempt) received.out_of_order++;
  }

  /**
   * Counts from 0 again. With `lanes` it also forgets the last seq of each lane: in a new service the seqs begin again.
   */
  reset({ lanes }: { lanes: boolean }): void {
    this.#received = nothingReceived();
    this.hung = 0;
    this.#samples.clear();
    if (lanes) this.#last_seqs = new Map();
  }

  get count(): number {
    return this.#received.pushes;
  }

  received(): Received {
    return { ...this.#received, hung: this.hung, latency_ms: this.#samples.distribution() };
  }
}

function nothingReceived(): Omit<Received, 'latency_ms' | 'hung'> {
  return { pushes: 0, first_us: 0, last_us: 0, out_of_order: 0, repeated: 0 };
}
