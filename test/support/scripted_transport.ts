import { type Outcome, outcomeOfStatus } from '../../src/domain/outcome.ts';
import type { Clock } from '../../src/delivery/clock.ts';
import type { Push, PushResult, Transport } from '../../src/delivery/transport/transport.ts';

/** What a receiver does with a push: a status, or an outcome without one. */
export interface Reply {
  says: number | Exclude<Outcome, 'ok' | 'not_200' | 'gone' | 'bad_status'>;
  after_ms?: number;
  retry_after?: string;
  /** The body of the response. */
  body?: string;
}

/** Makes the push hang until `release`. */
export const HANGS = 'hangs';

export type Script = (push: RecordedPush) => Reply | Reply['says'] | typeof HANGS;

export interface RecordedPush {
  at: number;
  ended_at: number | null;
  result: PushResult | null;
  instance_id: string;
  delivery_id: string;
  message_id: string;
  meeting_id: string;
  seq: number;
  attempt: number;
  url: string;
  headers: Record<string, string>;
  body: string;
}

/** The receivers of a test. Each response is scripted, and every push is recorded. */
export class ScriptedTransport implements Transport {
  readonly pushes: RecordedPush[] = [];
  readonly forgotten: string[] = [];
  /** How many pushes were in flight at a time, at most. */
  peak = 0;
  readonly peaks = new Map<string, number>();
  script: Script = () => 200;
  readonly #clock: Clock;
  readonly #scripts = new Map<string, Script>();
  readonly #hanging = new Map<RecordedPush, (reply: Reply) => void>();
  #in_flight: RecordedPush[] = [];
  onPush: ((push: RecordedPush, in_flight: readonly RecordedPush[]) => void) | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Sets the script of one instance. A list has a response for each push; after its end the response is 200. */
  answer(instance_id: string, script: Script | ReturnType<Script>[] | ReturnType<Script>): void {
    if (typeof script === 'function') this.#scripts.set(instance_id, script);
    else if (Array.isArray(script)) {
      const replies = [...script];
      this.#scripts.set(instance_id, () => replies.shift() ?? 200);
    } else this.#scripts.set(instance_id, () => script);
  }

  get in_flight(): readonly RecordedPush[] {
    return this.#in_flight;
  }

  /** Ends the pushes that hang, of one instance or of all. Returns how many it ended. */
  release(reply: Reply | Reply['says'] = 200, instance_id?: string): number {
    const released = [...this.#hanging.keys()].filter(
      (p) => instance_id === undefined || p.instance_id === instance_id,
    );
    for (const push of released) {
      const end = this.#hanging.get(push);
      this.#hanging.delete(push);
      end?.(typeof reply === 'object' ? reply : { says: reply });
    }
    return released.length;
  }

  /** Called when the process ends: cuts the connections, so that no push gets a result. */
  cut(): void {
    this.#hanging.clear();
    this.#in_flight = [];
  }

  canPush(): boolean {
    return true;
  }

  push(push: Push): Promise<PushResult> {
    const recorded = recordOf(push, this.#clock.now());
    this.pushes.push(recorded);
    this.#in_flight.push(recorded);
    this.peak = Math.max(this.peak, this.#in_flight.length);
    const of_instance = this.#in_flight.filter((p) => p.instance_id === push.instance_id).length;
    this.peaks.set(push.instance_id, Math.max(this.peaks.get(push.instance_id) ?? 0, of_instance));
    this.onPush?.(recorded, this.#in_flight);
    const script = this.#scripts.get(push.instance_id) ?? this.script;
    const said = script(recorded);
    const reply = typeof said === 'object' || said === HANGS ? said : { says: said };
    return new Promise((resolve) => {
      const end = ({ says, retry_after, body = '' }: Reply): void => {
        const index = this.#in_flight.indexOf(recorded);
        if (index === -1) return;
        this.#in_flight.splice(index, 1);
        recorded.ended_at = this.#clock.now();
        recorded.result = {
          outcome: typeof says === 'number' ? outcomeOfStatus(says, push.success_statuses) : says,
          status_code: typeof says === 'number' ? says : null,
          detail: says === 200 ? '' : `scripted ${says}`,
          duration_ms: recorded.ended_at - recorded.at,
          stages: [],
          response_excerpt: '',
          retry_after: retry_after ?? null,
          ...(says === 200 && push.keeps_body === true && { kept_body: { text: body } }),
        };
        resolve(recorded.result);
      };
      if (reply === HANGS) this.#hanging.set(recorded, end);
      else if (reply.after_ms === undefined) end(reply);
      else this.#clock.after(reply.after_ms, () => end(reply));
    });
  }

  forget(instance_id: string): void {
    this.forgotten.push(instance_id);
  }

  handOver(): void {}

  async close(): Promise<void> {}

  /** The pushes to an instance, or those of one of its meetings. */
  to(instance_id: string, meeting_id?: string): RecordedPush[] {
    return this.pushes.filter(
      (p) => p.instance_id === instance_id && (meeting_id === undefined || p.meeting_id === meeting_id),
    );
  }

  seqsTo(instance_id: string, meeting_id?: string): number[] {
    return this.to(instance_id, meeting_id).map((p) => p.seq);
  }
}

function recordOf({ instance_id, url, headers, body }: Push, at: number): RecordedPush {
  const text = Buffer.from(body).toString();
  return {
    at,
    ended_at: null,
    result: null,
    instance_id,
    delivery_id: headers['webhook-id'] as string,
    message_id: headers['convoke-message-id'] as string,
    meeting_id: (JSON.parse(text) as { meeting_id: string }).meeting_id,
    seq: Number(headers['convoke-seq']),
    attempt: Number(headers['convoke-attempt']),
    url,
    headers,
    body: text,
  };
}
