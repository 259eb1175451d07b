import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Instance } from '@convoke/sdk';
import { useQuery } from '../queries.ts';
import { type FeedEvent, feed } from '../feed.ts';
import { figuresOf } from '../metrics.ts';
import { Chart, type Line } from '../parts/chart.tsx';
import { Choice } from '../parts/choice.tsx';
import { HealthMark, Mark, type MarkKind } from '../parts/mark.tsx';
import { Page } from '../parts/page.tsx';
import { Healthy, Skeleton } from '../parts/states.tsx';
import { Ago, timeOfDay } from '../parts/time.tsx';
import { BIN_S, type Points } from '../rates.ts';
import { addressOf } from '../router.ts';
import { client } from '../service.ts';
import { useObservable } from '../observable.ts';
import { durationInWords, failureInWords } from '../format.ts';
import { activity, rates, sentenceOf } from '../activity.ts';
import { Foreign } from '../parts/foreign.tsx';

const SPANS = [
  ['60', '1 min'],
  ['300', '5 min'],
  ['3600', '1 h'],
] as const;
/** The steps of a chart, by its length in seconds. */
const STEPS: Record<(typeof SPANS)[number][0], number> = { '60': BIN_S, '300': 2 * BIN_S, '3600': 15 * BIN_S };
const FIGURES_EVERY_MS = 2000;

export function Now(): JSX.Element {
  const [span, setSpan] = useState<(typeof SPANS)[number][0]>('300');
  const [now_ms, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const points = rates.points(now_ms, Number(span), STEPS[span]);
  const recent = rates.points(now_ms, 10, 10);
  return (
    <Page title="Now" actions={<Choice label="Time shown" options={SPANS} value={span} onChange={setSpan} />}>
      <div class="now" tabIndex={0} role="group" aria-label="What happens now">
        <Figures recent={recent} />
        <div class="charts">
          <Throughput points={points} />
          <Latency points={points} />
        </div>
        <div class="now-lists">
          <Failing />
          <Activity />
        </div>
      </div>
    </Page>
  );
}

function Throughput({ points }: { points: Points }): JSX.Element {
  const lines: Line[] = [
    { name: 'accepted', colour: '--chart-2', values: points.accepted, is_dashed: true },
    { name: 'delivered', colour: '--good', values: points.delivered, is_filled: true },
    { name: 'failed', colour: '--bad', values: points.failed },
  ];
  return <Chart title="Throughput per second" at={points.at} lines={lines} inWords={rateInWords} />;
}

function Latency({ points }: { points: Points }): JSX.Element {
  const lines: Line[] = [
    { name: 'p50', colour: '--chart-1', values: points.p50_ms, is_filled: true },
    { name: 'p95', colour: '--chart-2', values: points.p95_ms, is_dashed: true },
  ];
  return (
    <Chart
      title="Latency, from acceptance to delivery"
      at={points.at}
      lines={lines}
      inWords={durationInWords}
      is_sparse
    />
  );
}

export function rateInWords(rate: number): string {
  if (rate === 0) return '0';
  return rate < 10 ? rate.toFixed(1) : Math.round(rate).toLocaleString('en');
}

function Figures({ recent }: { recent: Points }): JSX.Element {
  const { value: figures, again } = useQuery('figures', async () => figuresOf(await client.metrics()));
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && again(), FIGURES_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const delivered = recent.delivered[0] ?? 0;
  const p50 = recent.p50_ms[0] ?? null;
  const p95 = recent.p95_ms[0] ?? null;
  const show = (value: number | null | undefined, text: (value: number) => string): string =>
    value === null || value === undefined ? '–' : text(value);
  return (
    <dl class="figures">
      <Figure name="Delivered" value={rateInWords(delivered)} unit="/s" />
      <Figure name="Latency, p50" value={show(p50, durationInWords)} />
      <Figure name="Latency, p95" value={show(p95, durationInWords)} />
      <Figure name="In flight" value={show(figures?.in_flight, (value) => value.toLocaleString('en'))} />
      <Figure
        name="Pending"
        value={show(figures?.pending, (value) => value.toLocaleString('en'))}
        href={addressOf(['deliveries'], { state: 'pending' })}
      />
      <Figure
        name="Oldest pending"
        value={show(figures?.oldest_pending_s, (value) => (value === 0 ? 'none' : durationInWords(value * 1000)))}
      />
    </dl>
  );
}

function Figure({
  name,
  value,
  unit,
  href,
}: {
  name: string;
  value: string;
  unit?: string;
  href?: string;
}): JSX.Element {
  const text = (
    <>
      {value}
      {unit !== undefined && <span class="unit">{unit}</span>}
    </>
  );
  return (
    <div class="figure">
      <dt>{name}</dt>
      <dd>{href === undefined ? text : <a href={href}>{text}</a>}</dd>
    </div>
  );
}

const HEALTHS = ['up', 'failing', 'down', 'unknown'] as const;
/** The most instances that are named. The others are counted ("and more"); the page of instances lists all. */
const INSTANCES_MAX = 500;

/** Instances by their health, and those that fail, with the reason in words. */
function Failing(): JSX.Element {
  const { value } = useQuery(
    'instances by health',
    async () => {
      const pages = await Promise.all(HEALTHS.map((health) => client.listInstances({ health, limit: INSTANCES_MAX })));
      return new Map(HEALTHS.map((health, i) => [health, pages[i]!]));
    },
    (event) => event.name.startsWith('instance.') || event.name === 'delivery.attempted',
  );
  const failing = [...(value?.get('down')?.data ?? []), ...(value?.get('failing')?.data ?? [])].toSorted(byFailure);
  return (
    <section class="panel" aria-labelledby="failing">
      <header class="panel-head">
        <h2 id="failing">Instances</h2>
        <ul class="healths">
          {HEALTHS.map((health) => {
            const page = value?.get(health);
            const count = page === undefined ? '–' : `${page.data.length}${page.next_cursor === null ? '' : '+'}`;
            return (
              <li key={health}>
                <a href={addressOf(['instances'], { health })}>
                  <HealthMark health={health} /> {count}
                </a>
              </li>
            );
          })}
        </ul>
      </header>
      <div class="panel-body" tabIndex={0} role="group" aria-label="Last failures">
        {value === null && <Skeleton lines={4} />}
        {value !== null && failing.length === 0 && (
          <Healthy
            is_any_up={value.get('up')?.data.length !== 0}
            is_any_there={value.get('unknown')?.data.length !== 0}
          />
        )}
        <ul class="failures">
          {failing.slice(0, 30).map((instance) => (
            <FailureRow key={instance.instance_id} instance={instance} />
          ))}
        </ul>
      </div>
    </section>
  );
}

function byFailure(a: Instance, b: Instance): number {
  return (a.last_failure?.at ?? '') < (b.last_failure?.at ?? '') ? 1 : -1;
}

function FailureRow({ instance }: { instance: Instance }): JSX.Element {
  const { instance_id, instance_name, health, last_failure, pending_deliveries } = instance;
  return (
    <li class="failure">
      <HealthMark health={health} />
      <div class="grow">
        <a href={addressOf(['instances', instance_id])}>
          <Foreign>{instance_name || instance_id}</Foreign>
        </a>
        <p class="failure-why">
          <Foreign>{last_failure === null ? 'no failure on record' : failureInWords(last_failure)}</Foreign>
        </p>
        {last_failure !== null && (
          <p class="failure-advice">
            <Foreign>{last_failure.advice}</Foreign>
          </p>
        )}
      </div>
      <div class="failure-side">
        {last_failure !== null && <Ago at={last_failure.at} />}
        {pending_deliveries > 0 && <span>{pending_deliveries.toLocaleString('en')} waiting</span>}
      </div>
    </li>
  );
}

function kindOf({ name, sent }: FeedEvent): MarkKind {
  if (sent?.name === 'delivery.attempted') {
    return sent.data.state === 'delivered' ? 'good' : sent.data.state === 'failed' ? 'bad' : 'warning';
  }
  if (sent?.name === 'delivery.settled') return sent.data.state === 'failed' ? 'bad' : 'off';
  return KINDS[name] ?? 'off';
}

const KINDS: Partial<Record<FeedEvent['name'], MarkKind>> = {
  'delivery.queued': 'waiting',
  'instance.failing': 'warning',
  'instance.down': 'bad',
  'instance.up': 'good',
};

/** The latest events, in words. */
function Activity(): JSX.Element {
  const events = useObservable(activity);
  const state = useObservable(feed.state);
  return (
    <section class="panel" aria-labelledby="activity">
      <header class="panel-head">
        <h2 id="activity">Just now</h2>
      </header>
      <div class="panel-body" tabIndex={0} role="group" aria-label="Latest events">
        {events.length === 0 && (
          <p class="panel-empty faint">
            {state === 'live' ? 'Nothing yet. What happens appears here at once.' : 'Waiting for the live feed.'}
          </p>
        )}
        <ol class="activity">
          {events.map(({ number, event }) => (
            <li key={number}>
              <Mark kind={kindOf(event)} />
              <a class="clip grow" href={placeOf(event)}>
                {event.sent !== null && sentenceOf(event.sent)}
              </a>
              <span class="faint">{timeOfDay(event.at)}</span>
            </li>
          ))}
        </ol>
      </div>
    </section>
  );
}

function placeOf(event: FeedEvent): string {
  if (event.delivery_id) return addressOf(['deliveries', event.delivery_id]);
  if (event.meeting_id) return addressOf(['meetings', event.meeting_id]);
  if (event.instance_id) return addressOf(['instances', event.instance_id]);
  return '/';
}
