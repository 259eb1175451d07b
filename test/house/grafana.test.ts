/** A service reports every metric, label and value that docs/grafana requests from Prometheus. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { parse } from 'yaml';
import { DELIVERY_REASONS, DELIVERY_STATES } from '../../src/domain/delivery.ts';
import { OUTCOMES } from '../../src/domain/outcome.ts';
import { TIMEOUT_S_MAX } from '../../src/domain/runtimes/runtimes.ts';
import { type Clock, systemClock } from '../../src/delivery/clock.ts';
import type { Engine } from '../../src/delivery/engine.ts';
import type { AttemptEvent } from '../../src/delivery/observer.ts';
import { Metrics as ServiceMetrics } from '../../src/delivery/metrics.ts';
import type { Store } from '../../src/store/store.ts';
import { StoreError } from '../../src/store/store_error.ts';
import { startReceiver } from '../support/receiver.ts';
import { startService } from '../support/service.ts';
import { VirtualClock } from '../support/virtual_clock.ts';
import { until } from '../support/wait.ts';

interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: { expr: string; refId: string }[];
}

interface Dashboard {
  panels: Panel[];
  templating: { list: { name: string; definition?: string }[] };
}

interface Rule {
  alert: string;
  expr: string;
  labels: { severity: string };
  annotations: { summary: string; description: string };
}

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const DASHBOARD = JSON.parse(read('docs/grafana/dashboard.json')) as Dashboard;
const { groups } = parse(read('docs/grafana/alerts.yaml')) as { groups: { rules: Rule[] }[] };
const RULES = groups.flatMap(({ rules }) => rules);

/** The labels of each metric, and the values that occurred or can occur. */
type Metrics = Map<string, Map<string, Set<string>>>;

/** The labels that Prometheus adds to everything that it scrapes, and the metric of the scrape itself. */
const OF_PROMETHEUS = { labels: ['job', 'instance'], metric: 'up' };

const VALUES: Record<string, readonly string[]> = {
  outcome: Object.keys(OUTCOMES),
  state: DELIVERY_STATES,
  reason: [...DELIVERY_REASONS, 'none'],
};

/** The metrics in the text that a service exports. */
function metricsOf(text: string): Metrics {
  const metrics: Metrics = new Map([[OF_PROMETHEUS.metric, new Map()]]);
  for (const [, name = '', labels = ''] of text.matchAll(/^([a-z_]\w*)(?:\{(.*)\})? \S+$/gm)) {
    const known = metrics.get(name) ?? new Map<string, Set<string>>();
    metrics.set(name, known);
    for (const [, label = '', value = ''] of labels.matchAll(/(\w+)="([^"]*)"/g)) {
      known.set(label, (known.get(label) ?? new Set(VALUES[label] ?? [])).add(value));
    }
  }
  return metrics;
}

const WORDS = new Set(['by', 'without', 'unless', 'and', 'or', 'on', 'ignoring', 'bool', 'offset', 'label_values']);
const FUNCTIONS = new Set([
  'sum',
  'max',
  'min',
  'avg',
  'min_over_time',
  'rate',
  'increase',
  'changes',
  'histogram_quantile',
]);

/** Lists the names in an expression that do not exist. */
function unknownIn(expr: string, metrics: Metrics): string[] {
  const found: string[] = [];
  const labels_of_all = new Set([...metrics.values()].flatMap((labels) => [...labels.keys()]));
  const is_label = (name: string, of: ReadonlySet<string>): boolean =>
    of.has(name) || OF_PROMETHEUS.labels.includes(name);
  let rest = expr.replaceAll(/\b(?:by|without|on|ignoring) ?\(([^)]*)\)/g, (_, names: string) => {
    for (const name of names.split(',').map((each) => each.trim())) {
      if (!is_label(name, labels_of_all)) found.push(`label ${name}`);
    }
    return '';
  });
  rest = rest.replaceAll(/([a-zA-Z_:][\w:]*)\{([^}]*)\}/g, (_, name: string, matchers: string) => {
    const labels = metrics.get(name) ?? new Map<string, Set<string>>();
    for (const [, label = '', value = ''] of matchers.matchAll(/(\w+)\s*(?:=~|!=|=)\s*"([^"]*)"/g)) {
      if (!is_label(label, new Set(labels.keys()))) found.push(`label ${label} of ${name}`);
      else if (labels.has(label) && !labels.get(label)!.has(value)) found.push(`${label}="${value}" of ${name}`);
    }
    return ` ${name} `;
  });
  // In label_values(metric, label) the label comes after a comma.
  rest = rest.replaceAll(/label_values\(([^,]*),\s*(\w+)\)/g, (_, metric: string, label: string) => {
    if (!is_label(label, labels_of_all)) found.push(`label ${label}`);
    return metric;
  });
  rest = rest.replaceAll(/\[[^\]]*\]/g, ' ').replaceAll(/\b\d[\w.]*\b/g, ' ');
  for (const [name] of rest.matchAll(/[a-zA-Z_:][\w:]*/g)) {
    if (!WORDS.has(name) && !FUNCTIONS.has(name) && !metrics.has(name)) found.push(name);
  }
  return found;
}

/** All expressions, each with the place where it is used. */
function expressions(): [where: string, expr: string][] {
  const of_panels = DASHBOARD.panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, refId }): [string, string] => [`${title} ${refId}`, expr]),
  );
  const of_variables = DASHBOARD.templating.list.flatMap(({ name, definition }): [string, string][] =>
    definition === undefined ? [] : [[`variable ${name}`, definition]],
  );
  return [...of_panels, ...of_variables, ...RULES.map(({ alert, expr }): [string, string] => [alert, expr])];
}

test('a service exports every metric, label and value that the dashboard and the alerts name; a made-up one is found', async (t) => {
  const service = await startService(t);
  const receiver = await startReceiver(t);
  await service.register({ instance_id: 'up', webhook_url: receiver.url });
  await service.join('m', 'up', ['a']);
  await service.settled(await service.send('m', {}));
  receiver.behaviour = { status: 202 };
  await service.settled(await service.send('m', {}));
  const { text } = await service.get('/metrics');
  const metrics = metricsOf(text);

  assert.ok(expressions().length > 35);
  for (const [where, expr] of expressions()) assert.deepEqual(unknownIn(expr, metrics), [], `${where}: ${expr}`);

  assert.deepEqual(unknownIn('sum(rate(convoke_wishes_total[5m])) > 0.5', metrics), ['convoke_wishes_total']);
  const made_up = 'sum by (meeting) (convoke_attempts_total{outcome="lost", flavour="sweet"})';
  assert.deepEqual(unknownIn(made_up, metrics), [
    'label meeting',
    'outcome="lost" of convoke_attempts_total',
    'label flavour of convoke_attempts_total',
  ]);
});

const SERIES_MS = 500;

/** The metrics of a node without work, on a store with these reads, which can write unless `ping` says otherwise. */
function serviceMetrics(deliveries: object, ping = async () => {}, clock: Clock = systemClock()): ServiceMetrics {
  const store = { deliveries, ping } as unknown as Store;
  const pulls = { counts: { waiting: 0, awaited: 0, connected: 0 } };
  const stats = { partitions: 22, lease_age_ms: 0, in_flight: 0, queued_in_memory: 0, unsettled: 4000 };
  return new ServiceMetrics(clock, () => ({ stats }) as Engine, store, { heldAt: () => 0 }, pulls, null);
}

test('the delay of an event loop without work is far from what raises its alert, although it is looked at every 100 ms', async () => {
  const metrics = serviceMetrics({ countPending: async () => 0, oldestPending: async () => null });
  const least = async (): Promise<number> => {
    // A read of the metrics begins a new series of measurements of the event loop. The second gives the first value.
    await pause(SERIES_MS);
    const { text } = await metrics.text();
    return Number(/^convoke_nodejs_eventloop_lag_min_seconds (.*)$/m.exec(text)?.[1]);
  };
  assert.match(RULES.find(({ alert }) => alert === 'ConvokeEventLoopIsBusy')!.expr, /> 0\.1$/);
  await until('a look that is hardly late', least, (seconds) => seconds > 0 && seconds < 0.05);
});

test('two requests for the metrics that follow at once both show delays of the event loop that are possible', async () => {
  const metrics = serviceMetrics({ countPending: async () => 0, oldestPending: async () => null });
  for (const { text } of [await metrics.text(), await metrics.text()]) {
    const lags = [...text.matchAll(/^convoke_nodejs_eventloop_lag_(?:.+_)?seconds (.*)$/gm)].map(([, value]) =>
      Number(value),
    );
    assert.equal(lags.length, 8);
    assert.ok(
      lags.every((seconds) => seconds >= 0 && seconds < 60),
      lags.join(),
    );
  }
});

test('a series that an alert counts begins with 0: Prometheus sees no increase in a series that begins with its first event', async () => {
  const metrics = serviceMetrics({ countPending: async () => 0, oldestPending: async () => null });
  const { text } = await metrics.text();
  const counted = RULES.flatMap(({ expr }) => [
    ...expr.matchAll(/convoke_deliveries_settled_total\{job="convoke", ([^}]*)\}/g),
  ]);
  assert.equal(counted.length, 3);
  for (const [, labels = ''] of counted) {
    const series = text.split('\n').filter((line) => line.startsWith('convoke_deliveries_settled_total{'));
    const wanted = labels.split(', ');
    assert.ok(
      series.some((line) => line.endsWith(' 0') && wanted.every((label) => line.includes(label))),
      labels,
    );
  }
});

test('the longest attempt that is possible is in a bucket, so that a quantile shows it', async () => {
  const metrics = serviceMetrics({ countPending: async () => 0, oldestPending: async () => null });
  const attempt = { outcome: 'ok', duration_ms: TIMEOUT_S_MAX * 1_000 };
  metrics.attempted({ attempt, state: 'delivered', reason: null, accepted_at: 0 } as AttemptEvent, 0);
  const { text } = await metrics.text();
  const of_bucket = [...text.matchAll(/^convoke_attempt_seconds_bucket\{le="([\d.]+)"\} (\d+)$/gm)];
  assert.deepEqual([of_bucket.at(-1)?.[1], of_bucket.at(-1)?.[2]], [String(TIMEOUT_S_MAX), '1']);
  assert.ok(of_bucket.slice(0, -1).every(([, , count]) => count === '0'));
});

test('while the store fails, a node exports what it knows without it, which raises the alert', async () => {
  let is_away = true;
  const read = async (): Promise<number> => {
    if (is_away) throw new StoreError('ECONNREFUSED', 'connect ECONNREFUSED');
    return 7;
  };
  const metrics = serviceMetrics({ countPending: read, oldestPending: async () => null });

  const without = (await metrics.text()).text;
  assert.match(without, /^convoke_settlements_waiting 4000$/m);
  assert.deepEqual(unknownIn(RULES.find(({ alert }) => alert === 'ConvokeStoreFails')!.expr, metricsOf(without)), []);
  // While the store fails, the service reports no figure: neither an old figure nor 0.
  assert.doesNotMatch(without, /^convoke_deliveries_pending /m);

  is_away = false;
  assert.match((await metrics.text()).text, /^convoke_deliveries_pending 7$/m);
});

test('a store that can read and not write, such as one on a full disk, shows although nothing waits for it', async () => {
  const reads = { countPending: async () => 0, oldestPending: async () => null };
  let is_full = true;
  const metrics = serviceMetrics(reads, async () => {
    if (is_full) throw new StoreError('SQLITE_FULL', 'database or disk is full');
  });
  assert.match((await metrics.text()).text, /^convoke_store_writable 0$/m);
  is_full = false;
  assert.match((await metrics.text()).text, /^convoke_store_writable 1$/m);
});

test('while the store does not respond, the metrics wait for it less long than Prometheus for them', async () => {
  const clock = new VirtualClock();
  const never = () => new Promise<never>(() => {});
  const metrics = serviceMetrics({ countPending: never, oldestPending: never }, never, clock);
  const asked = metrics.text();
  await clock.advance(4_000);
  const { text } = await asked;
  assert.match(text, /^convoke_settlements_waiting 4000$/m);
  assert.doesNotMatch(text, /^convoke_(?:deliveries_pending|oldest_pending_seconds|store_writable) /m);
});

test('the dashboard is one that Grafana takes: ids are unique, panels do not overlap, and each says what it shows', () => {
  const { panels } = DASHBOARD;
  assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  const taken = new Map<string, string>();
  for (const { title, type, description, targets = [], gridPos } of panels) {
    assert.equal(new Set(targets.map(({ refId }) => refId)).size, targets.length, title);
    if (type !== 'row') assert.ok(targets.length > 0 && (description ?? '') !== '', title);
    assert.ok(gridPos.x + gridPos.w <= 24, title);
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
        assert.equal(taken.get(`${x},${y}`), undefined, `${title} lies over ${taken.get(`${x},${y}`)}`);
        taken.set(`${x},${y}`, title);
      }
    }
  }
});

test('every alert is explained in docs/alerts.md, and nothing else is', () => {
  const [, section = ''] = read('docs/alerts.md').split('## What each alert means');
  const explained = [...(section.split(/\n#+ /)[0] ?? '').matchAll(/^\| `(Convoke\w+)`/gm)].map(([, name]) => name);
  assert.deepEqual(
    explained,
    RULES.map(({ alert }) => alert),
  );
  for (const { alert, labels, annotations } of RULES) {
    assert.match(labels.severity, /^(critical|warning|info)$/, alert);
    assert.ok(annotations.summary !== '' && annotations.description !== '', alert);
  }
});
