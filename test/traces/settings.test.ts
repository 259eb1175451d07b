/**
 * The standard environment variables of OpenTelemetry: which variables switch traces on, and the error for a value that
 * Convoke cannot use.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readTraces } from '../../src/config/traces.ts';

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:4318' };
const isOn = (env: Record<string, string>): boolean => readTraces(env).settings !== null;

test('traces are off until a variable asks for them, and a variable can keep them off', () => {
  assert.equal(isOn({}), false);
  assert.equal(isOn({ OTEL_SERVICE_NAME: 'x', OTEL_TRACES_SAMPLER: 'always_on' }), false);
  assert.equal(isOn({ OTEL_EXPORTER_OTLP_ENDPOINT: '' }), false, 'an empty variable counts as absent');
  assert.equal(isOn(ENDPOINT), true);
  assert.equal(isOn({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://127.0.0.1:4318/v1/traces' }), true);
  assert.equal(isOn({ OTEL_TRACES_EXPORTER: 'otlp' }), true);
  assert.equal(isOn({ ...ENDPOINT, OTEL_TRACES_EXPORTER: 'none' }), false);
  assert.equal(isOn({ ...ENDPOINT, OTEL_SDK_DISABLED: 'TRUE' }), false);
  assert.equal(isOn({ ...ENDPOINT, OTEL_SDK_DISABLED: '1' }), true, 'only "true" is true');
});

test('the defaults are those of the specification', () => {
  assert.deepEqual(readTraces(ENDPOINT), {
    settings: {
      sampling: { is_parent_based: true, ratio: 1 },
      queue_spans_max: 2_048,
      batch_spans_max: 512,
      send_every_ms: 5_000,
      send_ms_max: 30_000,
    },
    warnings: [],
  });
});

test('samplers and sizes are read', () => {
  const sampling = (name: string, argument = '') =>
    readTraces({ ...ENDPOINT, OTEL_TRACES_SAMPLER: name, OTEL_TRACES_SAMPLER_ARG: argument }).settings?.sampling;
  assert.deepEqual(sampling('always_on'), { is_parent_based: false, ratio: 1 });
  assert.deepEqual(sampling('always_off'), { is_parent_based: false, ratio: 0 });
  assert.deepEqual(sampling('traceidratio', '0.25'), { is_parent_based: false, ratio: 0.25 });
  assert.deepEqual(sampling('parentbased_traceidratio', '0'), { is_parent_based: true, ratio: 0 });
  assert.deepEqual(sampling('ParentBased_Always_Off'), { is_parent_based: true, ratio: 0 });
  const { settings } = readTraces({
    ...ENDPOINT,
    OTEL_BSP_MAX_QUEUE_SIZE: '10',
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '5',
    OTEL_BSP_SCHEDULE_DELAY: '100',
    OTEL_BSP_EXPORT_TIMEOUT: '200',
  });
  const { sampling: _, ...sizes } = settings!;
  assert.deepEqual(sizes, { queue_spans_max: 10, batch_spans_max: 5, send_every_ms: 100, send_ms_max: 200 });
});

test('a value that cannot be followed is named in a warning, and ignored', () => {
  for (const [name, value] of [
    ['OTEL_TRACES_EXPORTER', 'zipkin'],
    ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
    ['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', 'http/json'],
    ['OTEL_TRACES_SAMPLER', 'xray'],
    ['OTEL_BSP_MAX_QUEUE_SIZE', '0'],
    ['OTEL_BSP_SCHEDULE_DELAY', 'soon'],
  ] as const) {
    const { settings, warnings } = readTraces({ ...ENDPOINT, [name]: value });
    assert.deepEqual(settings, readTraces(ENDPOINT).settings, name);
    assert.equal(warnings.length, 1);
    assert.match(warnings[0]!, new RegExp(`^${name} `));
  }
  const of_ratio = { ...ENDPOINT, OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '2' };
  assert.match(readTraces(of_ratio).warnings.join(), /OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1/);
});
