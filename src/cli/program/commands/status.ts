import { Command, Option } from 'commander';
import {
  all,
  type ConvokeClient,
  ConvokeError,
  type Counts,
  type GetHistoryQuery,
  type Instance,
  type ServiceHistory,
} from '@convoke/sdk';
import { wallNow } from '../../../wall_clock.ts';
import { type ApiOptions, clientFor, noteUnseen, withApi } from '../api.ts';
import { withExamples } from '../examples.ts';
import { ago, counted, durationInWords, nextTryInWords } from '../format.ts';
import { printFields, printJson } from '../terminal.ts';

type Span = NonNullable<GetHistoryQuery['span']>;
const SPANS: Record<Span, { title: string; ms: number }> = {
  '5m': { title: 'last 5 min', ms: 300_000 },
  '1h': { title: 'last hour', ms: 3_600_000 },
  '24h': { title: 'last day', ms: 86_400_000 },
};

/** The most instances that are named because they are down. */
const DOWN_SHOWN = 5;

interface StatusOptions extends ApiOptions {
  span: Span;
}

export function statusCommand(): Command {
  const command = new Command('status')
    .description('how many instances are up, how much waits, and the latest figures')
    .addOption(new Option('--span <span>', 'how far back').choices(Object.keys(SPANS)).default('5m'))
    .action(async (options: StatusOptions) => {
      const client = clientFor(options);
      const counts = await client.getCounts();
      const history = await historyOf(client, options.span);
      if (options.json) {
        printJson({ counts, history });
        return;
      }
      const down = counts.instances.down === 0 ? {} : await downInWords(client, counts.instances.down);
      printFields({
        ...countsInWords(counts, wallNow()),
        ...down,
        ...(history !== null && historyInWords(history, options.span)),
      });
      if (history === null) await noteUnseen(client);
    });
  return withExamples(withApi(command), {
    'convoke status': 'the state of the service in a few lines',
    'convoke status --span 24h --json': 'the counts, and every minute of the last day, for programs',
  });
}

/**
 * Returns null for a key that does not see the whole service. That key gets only the counts of the rows that it sees.
 */
async function historyOf(client: ConvokeClient, span: Span): Promise<ServiceHistory | null> {
  try {
    return await client.getHistory({ span });
  } catch (error) {
    if (error instanceof ConvokeError && error.code === 'not_permitted') return null;
    throw error;
  }
}

/** The counts in words, and from when they are if they are older than a second. */
export function countsInWords({ counted_at, instances, deliveries }: Counts, now_ms: number): Record<string, string> {
  const { up, failing, down, unknown, off, connected } = instances;
  const { pending, oldest_pending_at } = deliveries;
  const counted_ago = ago(counted_at, now_ms);
  const oldest = oldest_pending_at === null ? '' : `, the oldest from ${ago(oldest_pending_at, now_ms)}`;
  return {
    instances: `${up} up, ${failing} failing, ${down} down, ${unknown} not tried yet, ${off} off; ${connected} connected`,
    pending: counted(pending, 'delivery', 'deliveries') + oldest,
    // The service keeps the counts for a while when it has many instances.
    ...(counted_ago !== 'now' && { 'as of': counted_ago }),
  };
}

/** The first instances that are down, since when, and when the next attempt is made. */
export async function downInWords(
  client: Pick<ConvokeClient, 'listInstances'>,
  count: number,
): Promise<Record<string, string>> {
  const data: Instance[] = [];
  // One request may end before it has found the first of them.
  const down = all((start) => client.listInstances({ health: 'down', paused: false, limit: DOWN_SHOWN, ...start }));
  for await (const instance of down) if (data.push(instance) === Math.min(count, DOWN_SHOWN)) break;
  const now_ms = wallNow();
  const shown = data.map(({ instance_id, health_since, next_try_at }) => {
    const since = health_since === undefined ? '' : ` since ${ago(health_since, now_ms)}`;
    return `${instance_id}${since}${next_try_at === undefined ? '' : `, next try ${nextTryInWords(next_try_at, now_ms)}`}`;
  });
  const more = count - data.length;
  return { down: [...shown, ...(more > 0 ? [`and ${more} more`] : [])].join('; ') };
}

/** The period of the figures: the span, or the time since the start of the service if that is less. */
export function spanInWords(span: Span, counted_ms: number): string {
  const { title, ms } = SPANS[span];
  return counted_ms > 0 && counted_ms < ms ? `last ${durationInWords(counted_ms)}` : title;
}

function historyInWords(history: ServiceHistory, span: Span): Record<string, string> {
  const sum = (counts: readonly number[]): number => counts.reduce((all, each) => all + each, 0);
  const { counting_since, accepted, delivered, failed_attempts, failed, p50_ms, p95_ms } = history;
  const slowest = (durations: readonly (number | null)[]): string =>
    durationInWords(Math.max(...durations.map((ms) => ms ?? 0)));
  return {
    [spanInWords(span, wallNow() - Date.parse(counting_since))]:
      `${counted(sum(accepted), 'message')} accepted, ${counted(sum(delivered), 'delivery', 'deliveries')} succeeded, ${sum(failed)} failed; ${counted(sum(failed_attempts), 'attempt')} failed`,
    latency:
      sum(delivered) === 0
        ? 'nothing was delivered'
        : `at worst p50 ${slowest(p50_ms)}, p95 ${slowest(p95_ms)} (steps of ${history.step_s} s)`,
    'counted since': ago(counting_since, wallNow()),
  };
}
