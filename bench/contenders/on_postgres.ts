/** Convoke on PostgreSQL: one or more nodes on one PostgreSQL server. */
import { rm } from 'node:fs/promises';
import { ConvokeClient } from '@convoke/sdk';
import pg from 'pg';
import { type Contender, endProcess, scratchDirectory, startService } from './contenders.ts';
import { type Fleet, membersOf, SECRET } from '../load/fleet.ts';
import { startPostgres } from './postgres.ts';

/** All nodes encrypt under the same key. */
const ENCRYPTION_KEY = Buffer.alloc(32, 7).toString('base64');
/** How many instances are registered at a time. */
const AT_ONCE = 20;
/** The longest time until new nodes share the partitions. Before that, each node renews its lease a few times. */
const SHARED_MS_MAX = 30_000;
const LOOK_MS = 100;

interface Conditions {
  /** Whether another session stays idle in a transaction during the measurement. */
  idle_transaction?: boolean;
}

function onPostgres(name: string, node_count: number, { idle_transaction = false }: Conditions = {}): Contender {
  return {
    name,
    async start(options) {
      const data = await scratchDirectory();
      const postgres = await startPostgres(data);
      const env = { ...options.env, CONVOKE_DATABASE_URL: postgres.url, CONVOKE_ENCRYPTION_KEY: ENCRYPTION_KEY };
      const nodes = await Promise.all(
        Array.from({ length: node_count }, () => startService(data, { ...options, env })),
      );
      const [first, ...others] = nodes;
      if (first === undefined) throw new Error('there is no node to start');
      const client = new ConvokeClient({ base_url: first.url });
      await shared(client, node_count);
      await fill(client, options.fleet);
      const session = new pg.Client({ connectionString: postgres.url });
      await session.connect();
      if (idle_transaction) await session.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM messages');
      const watch = new pg.Client({ connectionString: postgres.url });
      await watch.connect();
      return {
        ...first,
        more_urls: others.map(({ url }) => url),
        pids: [...nodes.flatMap(({ pids }) => pids), postgres.pid],
        commits: () => commitsOf(watch),
        async stop() {
          await Promise.all([session.end(), watch.end(), ...nodes.map(({ probe }) => endProcess(probe))]);
          await postgres.stop();
          await rm(data, { recursive: true });
        },
      };
    },
  };
}

/** Resolves when every node has its share of the partitions. */
async function shared(client: ConvokeClient, node_count: number): Promise<void> {
  const given_up = performance.now() + SHARED_MS_MAX;
  for (;;) {
    const { data } = await client.listNodes();
    if (data.length === node_count && data.every(({ partitions }) => partitions > 0)) return;
    if (performance.now() > given_up) throw new Error(`the nodes did not share: ${JSON.stringify(data)}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

async function fill(client: ConvokeClient, fleet: Fleet): Promise<void> {
  const members = membersOf(fleet);
  const work = async (): Promise<void> => {
    for (const { instance_id, meeting_id, agent_id, transport, webhook_url } of members) {
      const agent_ids = [agent_id];
      await client.register({
        instance_id,
        instance_name: instance_id,
        agent_ids,
        transport,
        ...(transport === 'webhook' && { webhook_url }),
        webhook_secret: SECRET,
      });
      await client.joinMeeting({ instance_id, meeting_id, agent_ids });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/** How many transactions the database has committed. Sessions report their transactions up to a second late. */
async function commitsOf(watch: pg.Client): Promise<number> {
  await watch.query('SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()');
  const { rows } = await watch.query<{ commits: string }>(
    'SELECT xact_commit AS commits FROM pg_stat_database WHERE datname = current_database()',
  );
  return Number(rows[0]?.commits);
}

export const oneNode = onPostgres('convoke, PostgreSQL', 1);
export const twoNodes = onPostgres('convoke, PostgreSQL, 2 nodes', 2);
export const oneNodeBesideIdleTransaction = onPostgres('convoke, PostgreSQL, beside an idle transaction', 1, {
  idle_transaction: true,
});
