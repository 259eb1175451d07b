/** Removes the runs of nodes that were killed. A node that stops removes its own run. */
import { type Database, type Session, statement } from '../database.ts';

/** How often the runs are looked at. */
const LOOK_EVERY_MS = 3_600_000;
/** How long no batch may have been stored in a run, as this node has seen it, before the run is removed. */
const UNUSED_MS = 86_400_000;
/** The most runs that one look reads. */
const RUNS_MAX = 1_000;

const LAST_BATCH = 'SELECT coalesce(max(b.batch_no), 0) FROM batches b WHERE b.run_no =';
const RUNS = statement(
  `SELECT r.run_no, (${LAST_BATCH} r.run_no) AS batch_no FROM runs r ORDER BY r.run_no LIMIT ${RUNS_MAX}`,
);
/** Finds nothing while a batch of the run is in progress. */
const LOCK = statement('SELECT 1 FROM runs WHERE run_no = $run_no FOR UPDATE SKIP LOCKED');
const LAST = statement(`SELECT (${LAST_BATCH} $run_no) AS batch_no`);
const REMOVE = [
  statement('DELETE FROM runs WHERE run_no = $run_no'),
  statement('DELETE FROM batches WHERE run_no = $run_no'),
];

/**
 * A run is needed only until its node knows the result of the last batch: the node asks for that result by the number of
 * the batch, within seconds. So a run in which nothing was stored for a day is needed by nobody, whatever became of its
 * node. A living node that stored nothing for so long begins another run with its next batch: see `MessageWriter`.
 *
 * This node measures the day on its own clock, which nobody can set, and begins anew when the run has another batch.
 */
export class OldRuns {
  readonly #db: Database;
  readonly #now_ms: () => number;
  readonly #onFailed: (error: unknown) => void;
  /** The last batch of each run, and since when it has been the last. */
  #seen = new Map<number, { batch_no: number; since_ms: number }>();
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | null = null;

  /**
   * @param now_ms reads a clock that nobody can set
   * @param onFailed called when a look failed; the next one tries again
   */
  constructor(db: Database, now_ms: () => number, onFailed: (error: unknown) => void) {
    this.#db = db;
    this.#now_ms = now_ms;
    this.#onFailed = onFailed;
  }

  start(): void {
    this.#timer = setInterval(() => {
      this.#looking ??= this.look()
        .catch(this.#onFailed)
        .finally(() => (this.#looking = null));
    }, LOOK_EVERY_MS);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.#looking;
  }

  /** Looks at all runs once. @throws StoreError when something is in the way */
  async look(): Promise<void> {
    const now = this.#now_ms();
    const runs = await this.#db.read((session) => session.all<{ run_no: number; batch_no: number }>(RUNS));
    const before = this.#seen;
    this.#seen = new Map();
    for (const { run_no, batch_no } of runs) {
      const seen = before.get(run_no);
      const since_ms = seen?.batch_no === batch_no ? seen.since_ms : now;
      this.#seen.set(run_no, { batch_no, since_ms });
      if (now - since_ms < UNUSED_MS) continue;
      await this.#db.write(
        (session) => remove(session, run_no, batch_no),
        async () => {},
      );
    }
  }
}

/** Removes a run, unless it has a later batch. Behind the lock, a statement sees every batch that was stored. */
async function remove(session: Session, run_no: number, batch_no: number): Promise<void> {
  if ((await session.one(LOCK, { run_no })) === undefined) return;
  const last = await session.one<{ batch_no: number }>(LAST, { run_no });
  if (last?.batch_no !== batch_no) return;
  for (const each of REMOVE) await session.run(each, { run_no });
}
