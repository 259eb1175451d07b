/**
 * Counts instances by state. Groups the failing instances by cause; the cause with the most waiting deliveries is
 * first.
 */
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { all, type Counts, type Instance } from '@convoke/sdk';
import { type Query, usePoll, useQuery } from '../queries.ts';
import { Foreign } from '../parts/foreign.tsx';
import { Answer } from '../parts/answer.tsx';
import { HealthMark } from '../parts/mark.tsx';
import { Failure, Healthy, Skeleton } from '../parts/states.tsx';
import { Ago, At } from '../parts/time.tsx';
import { addressOf } from '../router.ts';
import { client } from '../service.ts';
import { counted, failureInWords, outcomeInWords } from '../format.ts';

const HEALTHS = ['up', 'failing', 'down', 'unknown'] as const;
/** The most instances that are read for each health, `down` and `failing`; the page of instances lists all. */
const READ_MAX = 500;
/** How many are shown before somebody asks for the rest. */
const SHOWN_FIRST = 30;
/** The least time between two reads while only the numbers change. */
const AGAIN_MS = 10_000;

export function Failing({ query }: { query: Query<Counts> }): JSX.Element {
  const { value: counts, problem, again } = query;
  const failing = counts === null ? null : counts.instances.failing + counts.instances.down;
  const { machines, unread } = useFailing(counts, failing);
  const [is_all, setAll] = useState(false);
  const shown = is_all ? machines : (machines?.slice(0, SHOWN_FIRST) ?? null);
  return (
    <section class="panel" aria-labelledby="failing">
      <header class="panel-head">
        <h2 id="failing">Instances</h2>
        <States counts={counts} />
      </header>
      <div class="panel-body" tabIndex={0} role="group" aria-label="Machines that fail">
        {counts === null && (problem === null ? <Skeleton lines={4} /> : <Failure problem={problem} again={again} />)}
        {counts !== null && failing !== 0 && machines === null && (unread ?? <Skeleton lines={4} />)}
        {failing === 0 && (
          <Healthy
            is_any_up={counts!.instances.up > 0}
            is_any_there={counts!.instances.unknown + counts!.instances.off > 0}
          />
        )}
        {failing !== null && failing > 0 && shown !== null && (
          <>
            {groupsOf(shown, machines!).map((group) => (
              <Group key={group.cause} group={group} />
            ))}
            <p class="failing-rest">
              <span>
                {shown.length.toLocaleString('en')} of {Math.max(failing, machines!.length).toLocaleString('en')} shown
              </span>
              {shown.length < machines!.length && (
                <button type="button" class="button" onClick={() => setAll(true)}>
                  Show {machines!.length - shown.length} more
                </button>
              )}
              {machines!.length < failing && <a href={addressOf(['instances'], { health: 'down' })}>All instances</a>}
            </p>
          </>
        )}
      </div>
    </section>
  );
}

/**
 * The failing machines, in their order. They are read again at once when the number of failing or down instances
 * changes, and after a while when the number of pending deliveries changes. While no machine fails there is no request.
 */
function useFailing(
  counts: Counts | null,
  failing: number | null,
): { machines: Instance[] | null; unread: JSX.Element | null } {
  const states = counts === null ? '' : `${counts.instances.failing} ${counts.instances.down}`;
  const latest = useRef('');
  latest.current = `${states} ${counts?.deliveries.pending}`;
  /** The counts at the time of the read. */
  const read = useRef('');
  const { value, problem, again } = useQuery(failing ? 'failing instances' : null, async () => {
    read.current = latest.current;
    return (await Promise.all([firstOf('down'), firstOf('failing')])).flat();
  });
  useEffect(() => {
    if (!read.current.startsWith(`${states} `)) again();
  }, [states]);
  usePoll(() => read.current !== latest.current && again(), AGAIN_MS);
  return {
    machines: failing === 0 || value === null ? null : value.toSorted(byWeight),
    unread: problem === null ? null : <Failure problem={problem} again={again} />,
  };
}

/** The first instances with this health. One request may end before it has read all instances. */
async function firstOf(health: 'down' | 'failing'): Promise<Instance[]> {
  const first: Instance[] = [];
  const found = all((start) => client.listInstances({ health, paused: false, limit: READ_MAX, ...start }));
  for await (const instance of found) if (first.push(instance) === READ_MAX) break;
  return first;
}

/** First those with the most waiting deliveries, then those without a success for the longest time. */
function byWeight(a: Instance, b: Instance): number {
  if (a.pending_deliveries !== b.pending_deliveries) return b.pending_deliveries - a.pending_deliveries;
  return (a.last_success_at ?? '') < (b.last_success_at ?? '') ? -1 : 1;
}

interface Cause {
  cause: string;
  /** The advice for all of these machines; null when their advice differs. */
  advice: string | null;
  /** The response of one of the machines; null when none is known. */
  example: string | null;
  /** The machines on the screen. */
  machines: Instance[];
  /** The number of all machines, on the screen or not. */
  count: number;
  pending: number;
}

function causeOf({ last_failure }: Instance): string {
  return last_failure === null ? 'no failure on record' : outcomeInWords(last_failure);
}

/** The causes of all machines, those with the most waiting deliveries first. */
function groupsOf(shown: readonly Instance[], all: readonly Instance[]): Cause[] {
  const groups = new Map<string, Cause>();
  for (const machine of all) {
    const cause = causeOf(machine);
    const advice = machine.last_failure?.advice ?? null;
    const group = groups.get(cause) ?? { cause, advice, example: null, machines: [], count: 0, pending: 0 };
    if (group.advice !== advice) group.advice = null;
    group.example ??= machine.last_failure?.response_excerpt ?? null;
    group.count++;
    group.pending += machine.pending_deliveries;
    groups.set(cause, group);
  }
  for (const machine of shown) groups.get(causeOf(machine))!.machines.push(machine);
  return [...groups.values()]
    .filter(({ machines, count }) => count > 1 || machines.length > 0)
    .toSorted((a, b) => b.pending - a.pending || b.count - a.count);
}

function Group({ group }: { group: Cause }): JSX.Element {
  const { cause, machines, count, pending } = group;
  const advice = count > 1 ? group.advice : null;
  const example = count > 1 ? group.example : null;
  return (
    <section class="cause" aria-label={`${counted(count, 'machine')}: ${cause}`}>
      {count > 1 && (
        <header class="cause-head">
          <div class="grow">
            <h3>
              {counted(count, 'machine')}: {cause}
            </h3>
            {example !== null && <Answer text={example} is_example />}
            {advice !== null && (
              <p class="failure-advice">
                <Foreign>{advice}</Foreign>
              </p>
            )}
          </div>
          {pending > 0 && <span>{pending.toLocaleString('en')} waiting</span>}
        </header>
      )}
      <ul class="failures">
        {machines.map((instance) => (
          <FailureRow
            key={instance.instance_id}
            instance={instance}
            is_advised={advice !== null}
            why={whyBeside(count > 1 ? cause : null, instance)}
            answer={answerBeside(example, instance)}
          />
        ))}
      </ul>
    </section>
  );
}

/** Why a machine fails, unless the heading of its group says the same. */
function whyBeside(cause: string | null, { last_failure }: Instance): string | null {
  const why = last_failure === null ? 'no failure on record' : failureInWords(last_failure);
  return why === cause ? null : why;
}

/** The response of a machine, unless the heading of its group shows the same. */
function answerBeside(example: string | null, { last_failure }: Instance): string | null {
  const answer = last_failure?.response_excerpt ?? null;
  return answer === example ? null : answer;
}

interface FailureRowProps {
  instance: Instance;
  /** Whether the heading of its group says what to do. */
  is_advised: boolean;
  why: string | null;
  answer: string | null;
}

function FailureRow({ instance, is_advised, why, answer }: FailureRowProps): JSX.Element {
  const { instance_id, instance_name, health, health_since, last_failure, last_success_at, pending_deliveries } =
    instance;
  return (
    <li class="failure">
      <HealthMark health={health} />
      <div class="grow">
        <a href={addressOf(['instances', instance_id])}>
          <Foreign>{instance_name || instance_id}</Foreign>
        </a>
        {why !== null && (
          <p class="failure-why">
            <Foreign>{why}</Foreign>
          </p>
        )}
        {answer !== null && <Answer text={answer} />}
        {!is_advised && last_failure !== null && (
          <p class="failure-advice">
            <Foreign>{last_failure.advice}</Foreign>
          </p>
        )}
      </div>
      <div class="failure-side">
        {pending_deliveries > 0 && <span>{pending_deliveries.toLocaleString('en')} waiting</span>}
        {health_since !== undefined && (
          <span>
            since <At at={health_since} />
          </span>
        )}
        <span>
          {last_success_at === null ? (
            'no success yet'
          ) : (
            <>
              last success <Ago at={last_success_at} />
            </>
          )}
        </span>
      </div>
    </li>
  );
}

function States({ counts }: { counts: Counts | null }): JSX.Element {
  const shown = (count: number | undefined): string => count?.toLocaleString('en') ?? '–';
  const instances = counts?.instances;
  return (
    <ul class="healths">
      {HEALTHS.map((health) => (
        <li key={health}>
          <a href={addressOf(['instances'], { health })}>
            <HealthMark health={health} /> {shown(instances?.[health])}
          </a>
        </li>
      ))}
      {instances !== undefined && instances.off > 0 && (
        <li>
          <a href={addressOf(['instances'], { health: 'paused' })}>{shown(instances.off)} paused</a>
        </li>
      )}
      {instances !== undefined && instances.connected > 0 && (
        <li class="faint">{shown(instances.connected)} connected</li>
      )}
    </ul>
  );
}
