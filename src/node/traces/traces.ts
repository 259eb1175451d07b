/**
 * Sends traces to a collector, with the OpenTelemetry SDK. This module is loaded only when traces are switched on, so
 * the packages cost nothing otherwise.
 */
import {
  type Attributes,
  createNoopMeter,
  diag,
  DiagLogLevel,
  type Meter,
  type MeterProvider,
} from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import {
  detectResources,
  resourceAttributesEnvDetector,
  resourceFromAttributes,
  serviceNameEnvDetector,
} from '@opentelemetry/resources';
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type { Sampling, TraceSettings } from '../../config/traces.ts';
import type { Log } from '../../delivery/bounded_log.ts';
import type { Clock } from '../../delivery/clock.ts';
import type { DroppedSpans, Tracer } from '../../delivery/tracer.ts';
import { VERSION } from '../../version.ts';
import { OtelTracer } from './otel_tracer.ts';
import { ATTRIBUTE } from './span_names.ts';

/** How long a stop waits for the collector. */
const FLUSH_MS_MAX = 1_000;

export interface Traces {
  tracer: Tracer;
  /** How many spans never reached the collector, since the start. */
  dropped(): DroppedSpans;
  /** Sends the waiting spans, and ends. Waits at most FLUSH_MS_MAX for a collector that does not respond. */
  close(): Promise<void>;
}

/**
 * Starts to send traces. The exporter reads the address of the collector from the standard environment variables. Spans
 * that the collector does not take are dropped, and the log says so.
 */
export function startTraces(
  settings: TraceSettings,
  { node_id, clock, log }: { node_id: string; clock: Clock; log: Log },
): Traces {
  diag.setLogger(logOf(log), { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
  const own = resourceFromAttributes({
    'service.name': 'convoke',
    'service.version': VERSION,
    'service.instance.id': node_id,
  });
  const given = detectResources({ detectors: [resourceAttributesEnvDetector, serviceNameEnvDetector] });
  const unsent = new UnsentSpans();
  const processor = new BatchSpanProcessor({
    exporter: new OTLPTraceExporter(),
    selfObsMeterProvider: unsent,
    maxQueueSize: settings.queue_spans_max,
    maxExportBatchSize: settings.batch_spans_max,
    scheduledDelayMillis: settings.send_every_ms,
    exportTimeoutMillis: settings.send_ms_max,
  });
  const provider = new TracerProvider({
    resource: own.merge(given),
    sampler: samplerOf(settings.sampling),
    spanProcessors: [processor],
  });
  const tracer = new OtelTracer(provider.getTracer('convoke', VERSION), clock);
  return {
    tracer,
    dropped: () => ({ ...unsent.counts, too_many_open: tracer.not_followed }),
    async close() {
      const late = Promise.withResolvers<never>();
      const timer = clock.after(FLUSH_MS_MAX, () => late.reject(new Error('it did not take them in time')));
      await Promise.race([provider.shutdown(), late.promise]).catch((error: unknown) =>
        log.warn({ err: error }, 'the last spans were not sent to the collector'),
      );
      timer.cancel();
    },
  };
}

/**
 * Counts the spans that the processor drops, or cannot send. The processor reports both as metrics of OpenTelemetry.
 */
class UnsentSpans implements MeterProvider {
  readonly counts = { queue_full: 0, not_sent: 0 };

  getMeter(): Meter {
    const meter = Object.create(createNoopMeter()) as Meter;
    meter.createCounter = () => ({
      add: (count, attributes) => {
        const error = (attributes as Attributes | undefined)?.[ATTRIBUTE.error_type];
        if (error !== undefined) this.counts[error === 'queue_full' ? 'queue_full' : 'not_sent'] += count;
      },
    });
    return meter;
  }
}

function samplerOf({ is_parent_based, ratio }: Sampling): Sampler {
  const root =
    ratio === 0 ? new AlwaysOffSampler() : ratio === 1 ? new AlwaysOnSampler() : new TraceIdRatioBasedSampler(ratio);
  return is_parent_based ? new ParentBasedSampler({ root }) : root;
}

/** The most characters of a report: it may have the whole response of the collector, which may be megabytes. */
const WHY_CHARS_MAX = 1_000;

/** Logs the reports of the SDK: exports that failed, and spans that were dropped. */
function logOf(log: Log) {
  const text = 'OpenTelemetry could not send all traces';
  const fieldsOf = (message: string, details: unknown[]) => ({
    why: [message, ...details].map(String).join(' ').slice(0, WHY_CHARS_MAX),
  });
  return {
    error: (message: string, ...details: unknown[]) => log.warn(fieldsOf(message, details), text),
    warn: (message: string, ...details: unknown[]) => log.warn(fieldsOf(message, details), text),
    info: () => {},
    debug: () => {},
    verbose: () => {},
  };
}
