/** The reports of the engine to a system that collects traces. The engine does not know that system. */
import type { Attempt } from '../domain/outcome.ts';
import type { TraceContext } from '../domain/trace_context.ts';
import type { Accepted, NewMessage } from '../store/contract/messages.ts';
import type { LaneDelivery } from './lanes/lane_delivery.ts';
import type { Target } from './transport/target.ts';

/** Follows messages through the service. Without a tracer, a message only keeps the trace of its sender. */
export interface Tracer {
  /**
   * Follows a message from its arrival until it is stored.
   *
   * @param store stores the message with the given trace
   */
  accept(
    message: Pick<NewMessage, 'meeting_id' | 'trace'>,
    store: (trace: TraceContext | null) => Promise<Accepted>,
  ): Promise<Accepted>;
  /** A batch was stored in one transaction. Times are wall time. */
  committed(batch: readonly NewMessage[], started_at: number, ended_at: number): void;
  /** An attempt begins. */
  attempt(delivery: LaneDelivery, target: Target, attempt: number, started_at: number): AttemptTrace;
}

/** An attempt that is followed. */
export interface AttemptTrace {
  /** The trace for the headers of the push. */
  readonly trace: TraceContext | null;
  /** @param made the attempt as it is stored; null: it counts as not made */
  ended(made: Attempt | null): void;
}

/**
 * Why a span did not reach the collector: the queue was full, the collector did not take the span, or too many spans
 * had not ended.
 */
export const SPAN_DROPS = ['queue_full', 'not_sent', 'too_many_open'] as const;
export type DroppedSpans = Record<(typeof SPAN_DROPS)[number], number>;
