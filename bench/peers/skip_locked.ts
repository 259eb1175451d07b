/**
 * A queue in one table of PostgreSQL, as many blogs describe it. One statement inserts many rows. A worker takes up to
 * 500 rows with FOR UPDATE SKIP LOCKED, and later marks all of them as done with one statement. An insert wakes the
 * workers.
 */
import pg from 'pg';
import { Gatherer, listen, onEnd, type PeerOptions, type PushJob, sender } from './parts.ts';
import { startPostgres } from '../contenders/postgres.ts';

const WORKERS = 3;
const JOBS_PER_FETCH = 500;
const JOBS_PER_INSERT = 500;
const INSERTS_UNDER_WAY = 2;
const POLL_MS = 500;

const INSERT = `
  INSERT INTO jobs (message_id, instance_id, body)
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[])`;

const TAKE = `
  UPDATE jobs SET state = 'active', started_at = now()
  WHERE id IN (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT ${JOBS_PER_FETCH} FOR UPDATE SKIP LOCKED)
  RETURNING id, message_id, instance_id, body`;

const END = `
  UPDATE jobs SET state = 'done', status = ended.status
  FROM unnest($1::bigint[], $2::int[]) AS ended (id, status) WHERE jobs.id = ended.id`;

export interface SkipLockedOptions extends PeerOptions {
  /** Whether another session stays idle in a transaction during the measurement. */
  idle_transaction?: boolean;
}

const { fleet, data, idle_transaction } = JSON.parse(process.argv[2]!) as SkipLockedOptions;
const postgres = await startPostgres(data);
const pool = new pg.Pool({ connectionString: postgres.url, max: WORKERS + INSERTS_UNDER_WAY });
pool.on('error', (error) => console.error(error.message));
await pool.query(`
  CREATE TABLE jobs (id bigserial PRIMARY KEY, message_id text NOT NULL, instance_id text NOT NULL, body text NOT NULL,
    state text NOT NULL DEFAULT 'new', started_at timestamptz, status int);
  CREATE INDEX jobs_new ON jobs (id) WHERE state = 'new'`);

const session = new pg.Client({ connectionString: postgres.url });
await session.connect();
if (idle_transaction === true) await session.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs');

const end = new AbortController();
const asleep = new Set<() => void>();

const gatherer = new Gatherer<PushJob>(JOBS_PER_INSERT, INSERTS_UNDER_WAY, async (jobs) => {
  const columns = [jobs.map((job) => job.message_id), jobs.map((job) => job.instance_id), jobs.map((job) => job.body)];
  await pool.query({ name: 'insert', text: INSERT, values: columns });
  for (const wake of asleep) wake();
});
await listen(fleet, (jobs) => gatherer.add(jobs));

const push = sender(fleet);

async function work(): Promise<void> {
  while (!end.signal.aborted) {
    const { rows } = await pool.query<PushJob & { id: string }>({ name: 'take', text: TAKE });
    if (rows.length === 0) {
      await sleep();
      continue;
    }
    const statuses = await Promise.all(rows.map((job) => push(`dlv_${job.id}`, job).catch(() => 0)));
    await pool.query({ name: 'end', text: END, values: [rows.map(({ id }) => id), statuses] });
  }
}

/** Waits until rows are inserted, at most `POLL_MS`. */
async function sleep(): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  asleep.add(resolve);
  const timer = setTimeout(resolve, POLL_MS);
  await promise;
  clearTimeout(timer);
  asleep.delete(resolve);
}

const workers = Array.from({ length: WORKERS }, () => work().catch((error: unknown) => console.error(error)));

onEnd(async () => {
  end.abort();
  for (const wake of asleep) wake();
  await Promise.all(workers);
  await Promise.all([session.end(), pool.end()]);
  await postgres.stop();
});
