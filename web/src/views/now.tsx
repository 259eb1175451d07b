import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Counts } from '@convoke/sdk';
import { usePoll, useQuery } from '../queries.ts';
import { type FeedEvent, feed } from '../feed.ts';
import { type Points, useHistory } from '../history.ts';
import { Chart, deliveriesOf, type Line } from '../parts/chart.tsx';
import { Choice } from '../parts/choice.tsx';
import { useHeld, usePointed } from '../parts/held.ts';
import { Mark, type MarkKind } from '../parts/mark.tsx';
import { Page } from '../parts/page.tsx';
import { Empty, ProblemLine, Skeleton } from '../parts/states.tsx';
import { Ago, At } from '../parts/time.tsx';
import { addressOf } from '../router.ts';
import { client } from '../service.ts';
import type { Span } from '../spans.ts';
import { useObservable } from '../observable.ts';
import { durationInWords, shown } from '../format.ts';
import { activity, is_recalled, sentenceOf } from '../activity.ts';
import { Failing } from './failing.tsx';

const SPANS = [
  ['5m', '5 min'],
  ['1h', '1 h'],
  ['24h', '24 h'],
] as const;
const COUNTS_EVERY_MS = 3000;
/** The figures cover this many seconds. */
const RECENT_S = 10;

export function Now(): JSX.Element {
  const [span, setSpan] = useState<Span>('5m');
  const latest = useHistory('5m');
  const longer = useHistory(span === '5m' ? null : span);
  const { points, problem } = span === '5m' ? latest : longer;
  const figures = useQuery(
    'counts',
    () => client.getCounts(),
    ({ name }) => name.startsWith('instance.'),
  );
  const { value: counts, again } = figures;
  usePoll(again, COUNTS_EVERY_MS);
  return (
    <Page title="Now" actions={<Choice label="Time shown" options={SPANS} value={span} onChange={setSpan} />}>
      <div class="now" tabIndex={0} role="group" aria-label="What happens now">
        <Figures points={latest.points} counts={counts} />
        {problem?.code === 'not_permitted' ? (
          <Empty title="Charts show the whole service. Your key sees a part of it." />
        ) : (
          <div class="charts">
            {hasGap(points) && problem !== null && <ProblemLine what="The charts cannot be read" problem={problem} />}
            <Throughput points={points} />
            <Latency points={points} />
          </div>
        )}
        <div class="now-lists">
          <Failing query={figures} />
          <Activity />
        </div>
      </div>
    </Page>
  );
}

/** Whether the charts are empty, or end with a gap. After a short break the next response has the missing steps. */
function hasGap(points: Points | null): boolean {
  return points === null || points.accepted.at(-1) === null;
}

const showDeliveries = deliveriesOf({});

function Throughput({ points }: { points: Points | null }): JSX.Element {
  const lines: Line[] = [
    { name: 'accepted', colour: '--chart-1', values: points?.accepted ?? [], is_dashed: true },
    { name: 'delivered', colour: '--good', values: points?.delivered ?? [], is_filled: true },
    { name: 'failed attempts', colour: '--waiting', values: points?.failed_attempts ?? [] },
    { name: 'failed', colour: '--bad', values: points?.failed ?? [] },
  ];
  return (
    <Chart
      title="Throughput per second"
      at={points?.at ?? []}
      lines={lines}
      inWords={rateInWords}
      onSelect={showDeliveries}
    />
  );
}

function Latency({ points }: { points: Points | null }): JSX.Element {
  const lines: Line[] = [
    { name: 'p50', colour: '--chart-1', values: points?.p50_ms ?? [], is_filled: true },
    { name: 'p95', colour: '--chart-2', values: points?.p95_ms ?? [], is_dashed: true },
  ];
  return (
    <Chart
      title="Latency, from acceptance to delivery"
      at={points?.at ?? []}
      lines={lines}
      inWords={durationInWords}
      onSelect={showDeliveries}
      is_sparse
    />
  );
}

export function rateInWords(rate: number): string {
  if (rate === 0) return '0';
  return rate < 10 ? rate.toFixed(1) : Math.round(rate).toLocaleString('en');
}

function Figures({ points, counts }: { points: Points | null; counts: Counts | null }): JSX.Element {
  const show = (value: number | null | undefined, text: (value: number) => string): string =>
    value === null || value === undefined ? '–' : text(value);
  const recent = points === null ? null : recentOf(points);
  const { pending, oldest_pending_at } = counts?.deliveries ?? {};
  return (
    <dl class="figures">
      <Figure name="Delivered" value={show(recent?.delivered, rateInWords)} unit="/s" />
      <Figure name="Failed attempts" value={show(recent?.failed_attempts, rateInWords)} unit="/s" />
      <Figure name="Latency, p50" value={show(recent?.p50_ms, durationInWords)} />
      <Figure name="Latency, p95" value={show(recent?.p95_ms, durationInWords)} />
      <Figure
        name="Pending"
        value={show(pending, (value) => value.toLocaleString('en'))}
        href={addressOf(['deliveries'], { state: 'pending' })}
      />
      <Figure
        name="Oldest pending"
        value={oldest_pending_at === undefined ? '–' : <Ago at={oldest_pending_at} never="none" />}
      />
    </dl>
  );
}

type Recent = Record<'delivered' | 'failed_attempts' | 'p50_ms' | 'p95_ms', number | null>;

/** The latest seconds together: the mean of the counts, and the latencies of the second with the most deliveries. */
function recentOf({ at, delivered, failed_attempts, p50_ms, p95_ms }: Points): Recent {
  const first = Math.max(0, at.length - RECENT_S);
  const mean = (column: readonly (number | null)[]): number | null => {
    const known = column.slice(first).filter((value) => value !== null);
    return known.length === 0 ? null : known.reduce((sum, each) => sum + each, 0) / known.length;
  };
  let busiest = at.length - 1;
  for (let i = first; i < at.length; i++) if ((delivered[i] ?? 0) > (delivered[busiest] ?? 0)) busiest = i;
  return {
    delivered: mean(delivered),
    failed_attempts: mean(failed_attempts),
    p50_ms: p50_ms[busiest] ?? null,
    p95_ms: p95_ms[busiest] ?? null,
  };
}

function Figure({
  name,
  value,
  unit,
  href,
}: {
  name: string;
  value: ComponentChildren;
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
  const { is_pointed, pointing } = usePointed();
  const { rows, news } = useHeld({
    list: 'activity',
    fresh: events,
    idOf: ({ number }) => String(number),
    is_held: is_pointed,
    is_complete: true,
  });
  const state = useObservable(feed.state);
  const is_known = useObservable(is_recalled);
  return (
    <section class="panel" aria-labelledby="activity">
      <header class="panel-head">
        <h2 id="activity">Just now</h2>
        {news > 0 && <span class="faint">{news} new</span>}
      </header>
      <div class="panel-body" tabIndex={0} role="group" aria-label="Latest events">
        {events.length === 0 && state === 'live' && !is_known && <Skeleton lines={4} />}
        {events.length === 0 && (state !== 'live' || is_known) && (
          <p class="panel-empty faint">
            {state === 'live' ? 'Nothing yet. What happens appears here at once.' : 'Waiting for the live feed.'}
          </p>
        )}
        <ol class="activity" {...pointing}>
          {rows.map(({ number, event }) => (
            <li key={number}>
              <Mark kind={kindOf(event)} />
              <a class="clip grow" href={placeOf(event)}>
                {event.sent !== null && shown(sentenceOf(event.sent))}
              </a>
              <span class="faint">
                <At at={event.at} />
              </span>
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
