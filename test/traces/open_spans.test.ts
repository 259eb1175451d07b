/** The limit of open spans counts only what is recorded. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  InMemorySpanExporter,
  type Sampler,
  SimpleSpanProcessor,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { systemClock } from '../../src/delivery/clock.ts';
import type { LaneDelivery } from '../../src/delivery/lanes/lane_delivery.ts';
import type { Target } from '../../src/delivery/transport/target.ts';
import { OtelTracer } from '../../src/node/traces/otel_tracer.ts';
import type { Accepted } from '../../src/store/contract/messages.ts';

const OPEN_SPANS_MAX = 10_000;
const REFUSED = { kind: 'refused' } as unknown as Accepted;
const DELIVERY = {
  message_id: 'msg',
  meeting_id: 'm',
  attempts: [],
  accepted_at: 0,
  trace: null,
} as unknown as LaneDelivery;
const TARGET = { transport: 'pull', runtime: null } as unknown as Target;

/** A tracer, and the names of the spans that it has sent. */
function tracerOf(sampler: Sampler): { tracer: OtelTracer; sent: () => string[] } {
  const exporter = new InMemorySpanExporter();
  const provider = new TracerProvider({ sampler, spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  const tracer = new OtelTracer(provider.getTracer('test'), systemClock());
  return { tracer, sent: () => exporter.getFinishedSpans().map(({ name }) => name) };
}

/** Lets OPEN_SPANS_MAX messages wait for the store. Returns what stores them. */
function fill(tracer: OtelTracer): () => Promise<void> {
  const stored = Promise.withResolvers<Accepted>();
  const waiting = Array.from({ length: OPEN_SPANS_MAX }, () =>
    tracer.accept({ meeting_id: 'm', trace: null }, () => stored.promise),
  );
  return async () => {
    stored.resolve(REFUSED);
    await Promise.all(waiting);
  };
}

test('while too many spans are open, a further message and a further attempt get none, and count as not followed', async () => {
  const { tracer, sent } = tracerOf(new AlwaysOnSampler());
  const store = fill(tracer);
  await tracer.accept({ meeting_id: 'm', trace: null }, async () => REFUSED);
  assert.equal(tracer.attempt(DELIVERY, TARGET, 1, 0).trace, null);
  assert.equal(tracer.not_followed, 2);
  assert.deepEqual(sent(), []);
  await store();
  assert.equal(sent().length, OPEN_SPANS_MAX);
  await tracer.accept({ meeting_id: 'm', trace: null }, async () => REFUSED);
  assert.equal(sent().length, OPEN_SPANS_MAX + 1, 'then there is room again');
  assert.equal(tracer.not_followed, 2);
});

test('messages and attempts that the sampler does not record take no room, and never count as not followed', async () => {
  const { tracer, sent } = tracerOf(new AlwaysOffSampler());
  const store = fill(tracer);
  for (let i = 0; i < OPEN_SPANS_MAX; i++) tracer.attempt(DELIVERY, TARGET, 1, 0);
  await tracer.accept({ meeting_id: 'm', trace: null }, async () => REFUSED);
  assert.equal(tracer.not_followed, 0);
  await store();
  assert.deepEqual(sent(), []);
});
