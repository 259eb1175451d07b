import type { JSX } from 'preact';
import { usePoll, useQuery } from '../queries.ts';
import { Chart, deliveriesOf } from '../parts/chart.tsx';
import { Reading } from '../parts/states.tsx';
import { timeOfDay } from '../parts/time.tsx';
import { client } from '../service.ts';
import { counted, durationInWords } from '../format.ts';

const AGAIN_MS = 20_000;
const DAY_S = 86_400;

/** How the attempts at an instance ended in the last day, and how long its deliveries took. */
export function LastDay({ instance_id }: { instance_id: string }): JSX.Element | null {
  const query = useQuery(`history of ${instance_id}`, () => client.getInstanceHistory(instance_id));
  const { value, problem, again } = query;
  usePoll(again, AGAIN_MS);
  if (value === null) return problem === null ? null : <Reading query={query} />;
  const { starts_at, step_s, counting_since, delivered, failed_attempts, p50_ms, p95_ms } = value;
  const sum = (counts: readonly number[]): number => counts.reduce((all, each) => all + each, 0);
  const succeeded = sum(delivered);
  const attempts = succeeded + sum(failed_attempts);
  if (attempts === 0)
    return (
      <>
        <Reading query={query} />
        <p class="faint">No attempts since {timeOfDay(counting_since)}.</p>
      </>
    );
  // The axis is always a day. The time before the first step is unknown, so it is a gap.
  const unknown = Math.max(0, DAY_S / step_s - delivered.length);
  const first_s = Date.parse(starts_at) / 1000 - unknown * step_s;
  const at = Array.from({ length: unknown + delivered.length }, (_, i) => first_s + i * step_s);
  const gap = Array.from({ length: unknown }, () => null);
  const showDeliveries = deliveriesOf({ instance_id });
  const share = Math.floor((100 * succeeded) / attempts);
  return (
    <>
      <Reading query={query} />
      <p>
        {share} % of {counted(attempts, 'attempt')} succeeded, since {timeOfDay(counting_since)}.
      </p>
      <Chart
        title="Attempts in 10 minutes"
        at={at}
        lines={[
          { name: 'succeeded', colour: '--good', values: [...gap, ...delivered], is_filled: true },
          { name: 'failed', colour: '--bad', values: [...gap, ...failed_attempts] },
        ]}
        inWords={(count) => count.toLocaleString('en')}
        onSelect={showDeliveries}
        is_sparse
      />
      <Chart
        title="Latency of its deliveries"
        at={at}
        lines={[
          { name: 'p50', colour: '--chart-1', values: [...gap, ...p50_ms], is_filled: true },
          { name: 'p95', colour: '--chart-2', values: [...gap, ...p95_ms], is_dashed: true },
        ]}
        inWords={durationInWords}
        onSelect={showDeliveries}
        is_sparse
      />
    </>
  );
}
