/** Prometheus itself checks the alert rules, and says which of them fire for the series of a situation. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { parse, stringify } from 'yaml';
import { temporaryDirectory } from '../support/command_line.ts';

const RULES = fileURLToPath(new URL('../../docs/grafana/alerts.yaml', import.meta.url));
const has_promtool = spawnSync('promtool', ['--version']).status === 0;

/** A scrape every 15 s: the steps of the series below, in the notation of promtool. */
const STEP = '15s';
const HOUR_OF_STEPS = 240;

/** Two nodes that work, with a message a second. A situation replaces some of these series. */
const HEALTHY: Record<string, string> = {
  ...ofNodes('up', '1x'),
  ...ofNodes('convoke_deliveries_queued_total', '0+30x'),
  ...ofNodes('convoke_deliveries_settled_total', '0+30x', 'state="delivered", reason="none"'),
  ...ofNodes('convoke_deliveries_settled_total', '0x', 'state="failed", reason="expired"'),
  ...ofNodes('convoke_deliveries_settled_total', '0x', 'state="failed", reason="exhausted"'),
  ...ofNodes('convoke_attempts_total', '0+30x', 'outcome="ok"'),
  ...ofNodes('convoke_attempts_total', '0+1x', 'outcome="timeout"'),
  ...ofNodes('convoke_store_writable', '1x'),
  ...ofNodes('convoke_settlements_waiting', '0x'),
  ...ofNodes('convoke_lease_age_seconds', '2x'),
  ...ofNodes('convoke_oldest_pending_seconds', '0x'),
  ...ofNodes('convoke_commit_seconds_bucket', '0+60x', 'le="0.005"'),
  ...ofNodes('convoke_commit_seconds_bucket', '0+60x', 'le="1"'),
  ...ofNodes('convoke_commit_seconds_bucket', '0+60x', 'le="+Inf"'),
  ...ofNodes('convoke_delivery_seconds_bucket', '0+30x', 'le="0.005"'),
  ...ofNodes('convoke_delivery_seconds_bucket', '0+30x', 'le="2.5"'),
  ...ofNodes('convoke_delivery_seconds_bucket', '0+30x', 'le="+Inf"'),
  ...ofNodes('convoke_nodejs_eventloop_lag_p99_seconds', '0.011x'),
  ...ofNodes('convoke_process_open_fds', '40x'),
  ...ofNodes('convoke_process_max_fds', '1024x'),
  ...ofNodes('convoke_process_start_time_seconds', '1700000000x'),
};

function ofNodes(metric: string, values: string, labels = ''): Record<string, string> {
  return Object.fromEntries(
    ['a:8080', 'b:8080'].map((instance) => [seriesOf(metric, instance, labels), `${values}${HOUR_OF_STEPS}`]),
  );
}

function seriesOf(metric: string, instance: string, labels = ''): string {
  return `${metric}{job="convoke", instance="${instance}"${labels === '' ? '' : `, ${labels}`}}`;
}

/** What happens, the series that differ from HEALTHY, and at which times which alerts fire. */
type Situation = [what: string, series: Record<string, string>, fires: Record<string, readonly string[]>];

const NOTHING: readonly string[] = [];
const A = 'a:8080';

const SITUATIONS: Situation[] = [
  ['all is well', {}, { '1m': NOTHING, '16m': NOTHING, '40m': NOTHING, '60m': NOTHING }],
  [
    'a node ends',
    { [seriesOf('up', A)]: '1x20 0x220' },
    { '6m': NOTHING, '7m': ['ConvokeDown'], '30m': ['ConvokeDown'] },
  ],
  [
    'one message goes to a machine that is off, in a quiet service',
    {
      ...ofNodes('convoke_deliveries_queued_total', '0x20 1x'),
      ...ofNodes('convoke_deliveries_settled_total', '0x', 'state="delivered", reason="none"'),
      ...ofNodes('convoke_attempts_total', '0x', 'outcome="ok"'),
      ...ofNodes('convoke_attempts_total', '0x', 'outcome="timeout"'),
    },
    { '11m': NOTHING, '14m': NOTHING, '30m': NOTHING },
  ],
  [
    'no push succeeds any more',
    {
      ...ofNodes('convoke_deliveries_settled_total', '0+30x20 600x', 'state="delivered", reason="none"'),
      ...ofNodes('convoke_attempts_total', '0+30x20 600x', 'outcome="ok"'),
      ...ofNodes('convoke_attempts_total', '0+1x20 20+30x', 'outcome="timeout"'),
    },
    { '14m': NOTHING, '30m': ['ConvokeAttemptsFail', 'ConvokeNothingIsDelivered'] },
  ],
  [
    'the disk is full, and nothing waits to be written',
    { [seriesOf('convoke_store_writable', A)]: '1x20 0x220' },
    { '5m30s': NOTHING, '7m': ['ConvokeStoreFails'], '40m': ['ConvokeStoreFails'] },
  ],
  [
    'many results wait',
    { [seriesOf('convoke_settlements_waiting', A)]: '0x20 1500x220' },
    { '5m30s': NOTHING, '7m': ['ConvokeStoreFails'] },
  ],
  [
    'the same few results wait, with little traffic',
    {
      [seriesOf('convoke_settlements_waiting', A)]: '0x20 3x220',
    },
    { '9m': NOTHING, '12m': ['ConvokeStoreFails'] },
  ],
  [
    'the lease gets old',
    { [seriesOf('convoke_lease_age_seconds', A)]: '2x20 0+15x220' },
    { '6m': NOTHING, '10m': ['ConvokeStoreFails'] },
  ],
  [
    'a delivery has waited for 60 hours',
    ofNodes('convoke_oldest_pending_seconds', '215000+15x'),
    { '16m': ['ConvokeAMachineIsDown'], '40m': ['ConvokeAMachineIsDown', 'ConvokeDeliveriesSoonExpire'] },
  ],
  [
    'deliveries that expired are recovered, and delivered within minutes',
    ofNodes('convoke_oldest_pending_seconds', '0x20 300000x12 0x'),
    { '6m': NOTHING, '8m': NOTHING, '20m': NOTHING },
  ],
  [
    'a delivery expires',
    ofNodes('convoke_deliveries_settled_total', '0x20 1x', 'state="failed", reason="expired"'),
    { '5m': NOTHING, '6m': ['ConvokeDeliveriesExpired'], '30m': NOTHING },
  ],
  [
    'receivers refuse every retry',
    ofNodes('convoke_deliveries_settled_total', '0x20 0+1x', 'state="failed", reason="exhausted"'),
    { '5m': NOTHING, '12m': ['ConvokeDeliveriesExhausted'] },
  ],
  [
    'commits are slow',
    ofNodes('convoke_commit_seconds_bucket', '0+30x', 'le="0.005"'),
    { '9m': NOTHING, '16m': ['ConvokeCommitsAreSlow'] },
  ],
  [
    'deliveries are slow',
    ofNodes('convoke_delivery_seconds_bucket', '0+1x', 'le="0.005"'),
    { '9m': NOTHING, '16m': ['ConvokeDeliveryIsSlow'] },
  ],
  [
    'the event loop of a node is busy',
    { [seriesOf('convoke_nodejs_eventloop_lag_p99_seconds', A)]: '0.3x240' },
    { '9m': NOTHING, '12m': ['ConvokeEventLoopIsBusy'] },
  ],
  [
    'a node has few file descriptors left',
    { [seriesOf('convoke_process_open_fds', A)]: '900x240' },
    { '4m': NOTHING, '6m': ['ConvokeFileDescriptorsRunOut'] },
  ],
  [
    'a node is started again two and then three times',
    {
      [seriesOf('convoke_process_start_time_seconds', A)]: '1700000000x20 1700000300x20 1700000600x20 1700000900x180',
    },
    { '14m': NOTHING, '16m': ['ConvokeRestartsAgainAndAgain'], '50m': NOTHING },
  ],
];

test(
  'each alert fires in the situation that it is for, and no alert fires in another',
  { skip: has_promtool ? false : 'promtool of Prometheus is not installed' },
  (t) => {
    const tests = SITUATIONS.map(([name, series, fires]) => ({
      name,
      interval: STEP,
      input_series: Object.entries({ ...HEALTHY, ...series }).map(([each, values]) => ({ series: each, values })),
      promql_expr_test: Object.entries(fires).map(([eval_time, names]) => ({
        expr: 'group by (alertname) (ALERTS{alertstate="firing"})',
        eval_time,
        exp_samples: names.map((alertname) => ({
          labels: `{alertname="${alertname}"}`,
          value: 1,
        })),
      })),
    }));
    const file = join(temporaryDirectory(t), 'tests.yaml');
    writeFileSync(file, stringify({ rule_files: [RULES], evaluation_interval: STEP, tests }));
    const fired = new Set(SITUATIONS.flatMap(([, , fires]) => Object.values(fires).flat()));
    const { groups } = parse(readFileSync(RULES, 'utf8')) as { groups: { rules: { alert: string }[] }[] };
    assert.deepEqual([...fired].toSorted(), groups.flatMap(({ rules }) => rules.map(({ alert }) => alert)).toSorted());
    execFileSync('promtool', ['check', 'rules', RULES], { stdio: 'pipe' });
    execFileSync('promtool', ['test', 'rules', file], { encoding: 'utf8' });
  },
);
