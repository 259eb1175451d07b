/**
 * Reads the standard environment variables of OpenTelemetry for traces
 * (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/). The variables of the exporter
 * and of the resource are not here: the library reads them itself. An empty variable counts as absent.
 */

/**
 * Which traces are recorded. With `is_parent_based`, a trace that a sender began is recorded if the sender records it.
 * Without `is_parent_based`, `ratio` decides about such a trace too.
 */
export interface Sampling {
  is_parent_based: boolean;
  /** The share of new traces, 0 to 1. */
  ratio: number;
}

export interface TraceSettings {
  sampling: Sampling;
  /** The most spans that wait to be sent. While that many wait, new spans are dropped. */
  queue_spans_max: number;
  batch_spans_max: number;
  send_every_ms: number;
  send_ms_max: number;
}

/**
 * A sentence for the log, about an environment variable whose value Convoke cannot use. It names the variable, and says
 * which values are possible or what Convoke does instead.
 */
export type TraceWarning = string;

const SAMPLERS: Record<string, Sampling | 'ratio' | 'parent_ratio'> = {
  always_on: { is_parent_based: false, ratio: 1 },
  always_off: { is_parent_based: false, ratio: 0 },
  traceidratio: 'ratio',
  parentbased_always_on: { is_parent_based: true, ratio: 1 },
  parentbased_always_off: { is_parent_based: true, ratio: 0 },
  parentbased_traceidratio: 'parent_ratio',
};
const DEFAULT_SAMPLER = 'parentbased_always_on';

/** The variables that name the protocol: the first that is given counts. */
const PROTOCOLS = ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'OTEL_EXPORTER_OTLP_PROTOCOL'];

const NUMBERS = {
  queue_spans_max: { variable: 'OTEL_BSP_MAX_QUEUE_SIZE', otherwise: 2_048, most: 65_536 },
  batch_spans_max: { variable: 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE', otherwise: 512, most: 65_536 },
  send_every_ms: { variable: 'OTEL_BSP_SCHEDULE_DELAY', otherwise: 5_000, most: 600_000 },
  send_ms_max: { variable: 'OTEL_BSP_EXPORT_TIMEOUT', otherwise: 30_000, most: 600_000 },
} as const;

type Environment = Readonly<Record<string, string | undefined>>;

/** The settings of traces, and the warnings about the variables. `settings` is null when no traces are collected. */
export function readTraces(env: Environment): { settings: TraceSettings | null; warnings: TraceWarning[] } {
  const warnings: TraceWarning[] = [];
  const given = (name: string): string | null => env[name]?.trim() || null;
  if (given('OTEL_SDK_DISABLED')?.toLowerCase() === 'true') return { settings: null, warnings };
  if (!isOn(given, warnings)) return { settings: null, warnings };
  const of_protocol = PROTOCOLS.find((variable) => given(variable) !== null);
  const protocol = of_protocol === undefined ? null : given(of_protocol);
  if (protocol !== null && protocol.toLowerCase() !== 'http/protobuf') {
    warnings.push(`${of_protocol} is ${protocol}; traces are sent with http/protobuf, usually to port 4318`);
  }
  const numbers = Object.entries(NUMBERS).map(([name, { variable, otherwise, most }]) => {
    const text = given(variable);
    const number = Number(text);
    const is_number = text !== null && Number.isSafeInteger(number) && number >= 1 && number <= most;
    if (text !== null && !is_number) {
      warnings.push(`${variable} must be a whole number from 1 to ${most}; it is taken for ${otherwise}`);
    }
    return [name, is_number ? number : otherwise] as const;
  });
  const settings = {
    sampling: samplingOf(given, warnings),
    ...(Object.fromEntries(numbers) as Record<keyof typeof NUMBERS, number>),
  };
  return { settings, warnings };
}

/**
 * Whether traces are on. `otlp` in OTEL_TRACES_EXPORTER switches them on, and `none` off. Otherwise they are on when a
 * variable names the address of a collector.
 */
function isOn(given: (name: string) => string | null, warnings: TraceWarning[]): boolean {
  const exporter = given('OTEL_TRACES_EXPORTER')?.toLowerCase() ?? null;
  if (exporter === 'none') return false;
  if (exporter === 'otlp') return true;
  if (exporter !== null) warnings.push(`OTEL_TRACES_EXPORTER is ${exporter}; otlp and none are known here`);
  return given('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT') !== null || given('OTEL_EXPORTER_OTLP_ENDPOINT') !== null;
}

function samplingOf(given: (name: string) => string | null, warnings: TraceWarning[]): Sampling {
  const name = given('OTEL_TRACES_SAMPLER')?.toLowerCase() ?? DEFAULT_SAMPLER;
  const sampler = Object.hasOwn(SAMPLERS, name) ? SAMPLERS[name] : undefined;
  if (sampler === undefined) {
    warnings.push(`OTEL_TRACES_SAMPLER is ${name}; ${Object.keys(SAMPLERS).join(', ')} are known here`);
    return { is_parent_based: true, ratio: 1 };
  }
  if (typeof sampler === 'object') return sampler;
  const argument = given('OTEL_TRACES_SAMPLER_ARG');
  const ratio = argument === null ? 1 : Number(argument);
  const is_ratio = ratio >= 0 && ratio <= 1;
  if (!is_ratio) warnings.push('OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1; it is taken for 1');
  return { is_parent_based: sampler === 'parent_ratio', ratio: is_ratio ? ratio : 1 };
}
