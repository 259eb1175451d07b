/** Sweeps deliveries every few seconds, and ends an upgrade when it can: see pending_deliveries.ts. */
import { type Database, type Session, statement } from '../database.ts';
import { MARK, OLD_INDEX } from './pending_deliveries.ts';
import { endUpgrade } from './upgrade.ts';

/** How often deliveries are swept. A sweep notes the deliveries that have been pending for this long. */
const SWEEP_EVERY_MS = 5_000;
/** The most rows in one transaction. Settlements of these rows wait until the transaction ends. */
const ROWS_PER_STEP = 10_000;
/** The pause after a try that did not end the upgrade. It doubles with each such try. */
const END_AGAIN_MS = 30_000;
const END_AGAIN_MS_MAX = 3_600_000;

const SEEN = statement(`
  SELECT (SELECT last_value FROM numbers) AS last_no, ${MARK} AS swept_to,
    to_regclass('${OLD_INDEX}') IS NOT NULL AND now() >= (SELECT coalesce(max(upgrade_ends_at), now()) FROM this_database) AS may_end`);
const AWAIT_ACCEPTS = statement('SELECT await_accepts()');
const STEP = statement('SELECT sweep_deliveries($reached, $rows_max) AS swept_to');

interface Seen {
  last_no: number;
  swept_to: number;
  /**
   * True when the views still find deliveries by `state`, and operators had their day to go back to the previous
   * version.
   */
  may_end: boolean;
}

export class Sweeper {
  readonly #db: Database;
  readonly #url: string;
  readonly #onFailed: (error: unknown) => void;
  #timer: NodeJS.Timeout | undefined;
  #sweeping: Promise<void> | null = null;
  readonly #closed = new AbortController();
  /** The last number that was given when the last sweep began. */
  #last_no: number | null = null;
  #end_at = 0;
  #end_again_ms = END_AGAIN_MS;

  /** @param onFailed called when a sweep failed; the next one tries again */
  constructor(db: Database, url: string, onFailed: (error: unknown) => void) {
    this.#db = db;
    this.#url = url;
    this.#onFailed = onFailed;
  }

  start(): void {
    this.#timer = setInterval(() => this.#begin(), SWEEP_EVERY_MS);
    this.#timer.unref();
  }

  async close(): Promise<void> {
    this.#closed.abort();
    clearInterval(this.#timer);
    await this.#sweeping;
  }

  #begin(): void {
    this.#sweeping ??= this.sweep()
      .catch((error: unknown) => {
        if (!this.#closed.signal.aborted) this.#onFailed(error);
      })
      .finally(() => (this.#sweeping = null));
  }

  /** Sweeps once. @throws StoreError when something is in the way; the next sweep tries again */
  async sweep(): Promise<void> {
    const is_at_end = await this.#db.read((session) => this.#sweepOn(session));
    if (!is_at_end || this.#closed.signal.aborted || performance.now() < this.#end_at) return;
    this.#end_at = performance.now() + this.#end_again_ms;
    this.#end_again_ms = Math.min(END_AGAIN_MS_MAX, 2 * this.#end_again_ms);
    await endUpgrade(this.#url, this.#closed.signal);
  }

  /**
   * When a sweep begins, it notes the last number that was given (`last_no`). The next sweep sweeps up to that number, so
   * that deliveries get a few seconds to be settled. All statements run on one connection, so they see the same database.
   * `last_no` can be lower than in the previous sweep, because a standby without the last commits may have taken over.
   *
   * @returns whether an upgrade can end, because a sweep has seen every row from before the upgrade
   */
  async #sweepOn(session: Session): Promise<boolean> {
    const { last_no, swept_to, may_end } = (await session.one<Seen>(SEEN))!;
    const reached = Math.min(this.#last_no ?? 0, last_no);
    this.#last_no = last_no;
    if (reached === 0) return false;
    let mark: number | null = swept_to;
    if (mark < reached) {
      await session.all(AWAIT_ACCEPTS);
      for (let before = -1; mark !== null && before < mark && mark < reached && !this.#closed.signal.aborted;) {
        before = mark;
        const values = { reached, rows_max: ROWS_PER_STEP };
        mark = (await session.one<{ swept_to: number | null }>(STEP, values))!.swept_to;
      }
    }
    return may_end && mark !== null && mark >= reached;
  }
}
