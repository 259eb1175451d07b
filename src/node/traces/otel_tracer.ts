/**
 * Makes spans from the reports of the engine. A message has a span `send`, with `commit` under it, and for each attempt
 * `wait` and `push`. The context of `send` is stored with the message, so the other spans are its children on every
 * node and after a restart. See docs/traces.md.
 */
import {
  type Attributes,
  type Context,
  createTraceState,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace as api,
  TraceFlags,
  type Tracer as SpanMaker,
} from '@opentelemetry/api';
import type { Clock } from '../../delivery/clock.ts';
import type { LaneDelivery } from '../../delivery/lanes/lane_delivery.ts';
import type { AttemptTrace, Tracer } from '../../delivery/tracer.ts';
import type { Target } from '../../delivery/transport/target.ts';
import type { Attempt } from '../../domain/outcome.ts';
import { Problem } from '../../domain/problem.ts';
import { type TraceContext, traceHeaders, traceIds, traceOf } from '../../domain/trace_context.ts';
import type { Accepted, NewMessage } from '../../store/contract/messages.ts';
import { StoreError } from '../../store/store_error.ts';
import { ATTRIBUTE, OPERATION_TYPE, OWN_ATTRIBUTE, SPAN, SYSTEM } from './span_names.ts';

/**
 * How many recorded spans may have begun and not ended. While that many are open, further messages and attempts get no
 * span.
 */
const OPEN_SPANS_MAX = 10_000;

export class OtelTracer implements Tracer {
  readonly #spans: SpanMaker;
  readonly #clock: Clock;
  #open = 0;
  /** Messages and attempts that were not followed, because too many spans were open. */
  not_followed = 0;

  constructor(spans: SpanMaker, clock: Clock) {
    this.#spans = spans;
    this.#clock = clock;
  }

  async accept(
    { meeting_id, trace }: Pick<NewMessage, 'meeting_id' | 'trace'>,
    store: (trace: TraceContext | null) => Promise<Accepted>,
  ): Promise<Accepted> {
    const span = this.#spans.startSpan(
      SPAN.accept,
      { kind: SpanKind.PRODUCER, startTime: this.#clock.wall(), attributes: operation(SPAN.accept, meeting_id) },
      contextOf(trace),
    );
    if (!span.isRecording()) return store(traceBy(span, trace));
    if (this.#isFull()) return store(trace);
    this.#open++;
    try {
      const accepted = await store(traceBy(span, trace));
      noteAccepted(span, accepted);
      return accepted;
    } catch (error) {
      fail(span, error instanceof Problem || error instanceof StoreError ? error.code : 'defect');
      throw error;
    } finally {
      this.#open--;
      span.end(this.#clock.wall());
    }
  }

  committed(batch: readonly NewMessage[], started_at: number, ended_at: number): void {
    for (const { meeting_id, trace } of batch) {
      if (trace === null || !isSampled(trace)) continue;
      const attributes = {
        [ATTRIBUTE.system]: SYSTEM,
        [ATTRIBUTE.meeting_id]: meeting_id,
        ...(batch.length > 1 && { [ATTRIBUTE.batch_messages]: batch.length }),
      };
      this.#spans.startSpan(SPAN.commit, { startTime: started_at, attributes }, contextOf(trace)).end(ended_at);
    }
  }

  attempt(delivery: LaneDelivery, target: Target, attempt: number, started_at: number): AttemptTrace {
    const { trace } = delivery;
    // Whether a trace is recorded was decided when its message was stored.
    if (trace !== null && !isSampled(trace)) return { trace, ended: () => {} };
    const parent = contextOf(trace);
    const about = {
      [ATTRIBUTE.message_id]: delivery.message_id,
      [ATTRIBUTE.instance_id]: delivery.instance_id,
      [OWN_ATTRIBUTE.delivery_id]: delivery.delivery_id,
      [OWN_ATTRIBUTE.seq]: delivery.seq,
      [OWN_ATTRIBUTE.attempt]: attempt,
    };
    const span = this.#spans.startSpan(
      SPAN.attempt,
      {
        kind: SpanKind.CLIENT,
        startTime: started_at,
        links: trace === null ? [] : [{ context: spanContextOf(trace) }],
        attributes: { ...operation(SPAN.attempt, delivery.meeting_id), ...about, ...wayTo(target) },
      },
      parent,
    );
    if (!span.isRecording()) return { trace: traceBy(span, trace), ended: () => {} };
    if (this.#isFull()) return { trace, ended: () => {} };
    if (trace !== null) {
      const attributes = { [ATTRIBUTE.system]: SYSTEM, [ATTRIBUTE.meeting_id]: delivery.meeting_id, ...about };
      const waits_since = Math.min(waitsSince(delivery), started_at);
      this.#spans.startSpan(SPAN.wait, { startTime: waits_since, attributes }, parent).end(started_at);
    }
    this.#open++;
    return {
      trace: traceBy(span, trace),
      ended: (made) => {
        this.#open--;
        // The span of an attempt that counts as not made never ends, so the span is not sent.
        if (made !== null) end(span, made, started_at);
      },
    };
  }

  /** Whether there is no room for one more span. Then the span, which has begun, never ends, and so it is not sent. */
  #isFull(): boolean {
    if (this.#open < OPEN_SPANS_MAX) return false;
    this.not_followed++;
    return true;
  }
}

function operation(name: string, meeting_id: string): Attributes {
  return {
    [ATTRIBUTE.system]: SYSTEM,
    [ATTRIBUTE.operation_name]: name,
    [ATTRIBUTE.operation_type]: OPERATION_TYPE,
    [ATTRIBUTE.meeting_id]: meeting_id,
  };
}

/** Names only the host and the port of the address, because its path and its query may be secret. */
function wayTo({ transport, runtime, url }: Target): Attributes {
  const own = {
    [OWN_ATTRIBUTE.transport]: transport,
    ...(runtime !== null && { [OWN_ATTRIBUTE.runtime]: runtime.name }),
  };
  if (transport === 'pull' || !URL.canParse(url)) return own;
  const { hostname, port, protocol } = new URL(url);
  const server_port = port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port);
  return { ...own, [ATTRIBUTE.server_address]: hostname, [ATTRIBUTE.server_port]: server_port };
}

/** When the wait for this attempt began: when the message was stored, or the attempt before it ended. */
function waitsSince({ accepted_at, attempts }: LaneDelivery): number {
  const before = attempts.at(-1);
  return before === undefined ? accepted_at : Date.parse(before.started_at) + before.duration_ms;
}

function noteAccepted(span: Span, accepted: Accepted): void {
  if (accepted.kind !== 'accepted' && accepted.kind !== 'repeated') return fail(span, accepted.kind);
  const { message_id, seq, deliveries_queued } = accepted.message;
  span.setAttributes({
    [ATTRIBUTE.message_id]: message_id,
    [OWN_ATTRIBUTE.seq]: seq,
    [OWN_ATTRIBUTE.deliveries]: deliveries_queued,
    ...(accepted.kind === 'repeated' && { [OWN_ATTRIBUTE.repeated]: true }),
  });
}

function end(span: Span, { outcome, status_code, duration_ms }: Attempt, started_at: number): void {
  if (status_code !== null) span.setAttribute(ATTRIBUTE.status_code, status_code);
  if (outcome !== 'ok') fail(span, outcome);
  span.end(started_at + duration_ms);
}

function fail(span: Span, error_type: string): void {
  span.setAttribute(ATTRIBUTE.error_type, error_type);
  span.setStatus({ code: SpanStatusCode.ERROR, message: error_type });
}

function isSampled(trace: TraceContext): boolean {
  return (traceIds(trace).flags & TraceFlags.SAMPLED) !== 0;
}

/** The context in which the children of a trace begin. */
function contextOf(trace: TraceContext | null): Context {
  return trace === null ? ROOT_CONTEXT : api.setSpanContext(ROOT_CONTEXT, spanContextOf(trace));
}

function spanContextOf(trace: TraceContext): SpanContext {
  const { trace_id, span_id, flags } = traceIds(trace);
  const { tracestate } = traceHeaders(trace);
  return {
    traceId: trace_id,
    spanId: span_id,
    traceFlags: flags & TraceFlags.SAMPLED,
    isRemote: true,
    ...(tracestate !== undefined && { traceState: createTraceState(tracestate) }),
  };
}

/**
 * The trace as it continues from a span, which becomes the parent of later spans. A span that is not recorded leaves
 * the trace as it is: the collector never gets this span, so the later spans would lack their parent.
 */
function traceBy(span: Span, trace: TraceContext | null): TraceContext | null {
  if (!span.isRecording() && trace !== null) return trace;
  const { traceId, spanId, traceFlags, traceState } = span.spanContext();
  const flags = traceFlags.toString(16).padStart(2, '0');
  return traceOf(`00-${traceId}-${spanId}-${flags}`, traceState?.serialize());
}
