import type { Hold } from '../domain/clock_hold.ts';
import type { AsidePlace, EndedInLane, ExpiryPlace, PrunePlace } from '../store/contract/deliveries.ts';
import type { FileSpace } from '../store/contract/file.ts';
import { IDEMPOTENCY_MS } from '../store/contract/messages.ts';
import type { Store } from '../store/store.ts';
import type { Clock, Timer } from './clock.ts';
import type { Expiry } from './expiry.ts';
import { scanPause } from './scan_pause.ts';

export interface MaintenanceSettings {
  retention_deliveries_ms: number;
  retention_messages_ms: number;
  retention_audit_ms: number;
}

export interface MaintenanceObserver {
  /** Deliveries failed because they expired. */
  expired(deliveries: EndedInLane[]): void;
  /** The data file is mostly empty and cannot shrink, because an old version made it. */
  isMostlyEmpty(space: FileSpace): void;
  /** A round failed; the next one tries again. */
  failed(error: unknown): void;
}

/**
 * The deliveries that failed in a step, because they had expired. `next` says where the next step begins; null after
 * the last step.
 */
interface Expired<Place> {
  expired: EndedInLane[];
  next: Place | null;
}

type MaintainedStore = Pick<Store, 'deliveries' | 'audit' | 'file'>;

const INTERVAL_MS = 60_000;
/** The most lanes in one step. Steps are small, so that requests do not wait for them. */
const LANES_PER_STEP = 500;
const ROWS_PER_STEP = 500;
/** A row with a time this far in the future has the time of a wrong clock. Clocks that are right differ by less. */
const FUTURE_MS = 24 * 60 * 60 * 1_000;
/**
 * A step that removes rows ends soon after REMOVING_MS. The pause before the next step is REMOVING_PAUSE_FACTOR times
 * as long as the step, so that requests do not notice the removal. When a round has removed rows for longer than
 * REMOVING_SLOWLY_MS, it is behind. From then on, each pause is only as long as the step before it.
 */
const REMOVING_MS = 5;
const REMOVING_PAUSE_FACTOR = 4;
const REMOVING_SLOWLY_MS = 30_000;

/**
 * The free pages that a file keeps for new rows: at least FREE_PAGES_MIN, and at least FREE_PART of the used pages. A
 * round gives the other free pages back to the file system, in steps. The pause after each step is PAUSE_FACTOR times
 * as long as the step. The round stops after GIVING_BACK_MS_MAX, and the next round continues.
 */
const FREE_PAGES_MIN = 1_024;
const FREE_PART = 0.1;
const PAGES_PER_STEP = 256;
const STEP_MS = 10;
const PAUSE_FACTOR = 9;
const GIVING_BACK_MS_MAX = 30_000;

/**
 * When a file cannot shrink, and more than half of it and at least EMPTY_BYTES_MIN are free, the log reports it once a
 * day.
 */
const EMPTY_BYTES_MIN = 64 << 20;
const REPORT_AGAIN_MS = 86_400_000;

/**
 * Fails deliveries that have expired, and removes rows that were kept long enough. A round runs once a minute, and less
 * often when a round takes long.
 */
export class Maintenance {
  readonly #clock: Clock;
  readonly #store: MaintainedStore;
  readonly #settings: MaintenanceSettings;
  readonly #expiry: Expiry;
  readonly #observer: MaintenanceObserver;
  readonly #isMine: () => boolean;
  #timer: Timer | null = null;
  /** How long the last scan for expired deliveries took. */
  #expiring_ms = 0;
  #stopped = false;
  #reported_at: number | null = null;

  /** @param isMine whether this node does the maintenance: one node of a cluster does it for all nodes */
  constructor(
    clock: Clock,
    store: MaintainedStore,
    settings: MaintenanceSettings,
    expiry: Expiry,
    observer: MaintenanceObserver,
    isMine: () => boolean = () => true,
  ) {
    this.#isMine = isMine;
    this.#clock = clock;
    this.#store = store;
    this.#settings = settings;
    this.#expiry = expiry;
    this.#observer = observer;
  }

  start(): void {
    this.#timer = this.#clock.after(scanPause(this.#expiring_ms, INTERVAL_MS), () => void this.#tick());
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  async #tick(): Promise<void> {
    try {
      if (this.#isMine()) await this.run();
    } catch (error) {
      this.#observer.failed(error);
    }
    if (!this.#stopped) this.start();
  }

  /** Does one round of all the work. */
  async run(): Promise<void> {
    const from = this.#clock.now();
    await this.#store.deliveries.noteTime(this.#expiry.note(from));
    const { deliveries } = this.#store;
    const lanes_ms = await this.#expire<ExpiryPlace>((after, ...time) =>
      deliveries.expireLanes(after, LANES_PER_STEP, ...time),
    );
    const aside_ms = await this.#expire<AsidePlace>((...step) => deliveries.expireAside(...step));
    this.#expiring_ms = lanes_ms + aside_ms;

    // A jump of the clock must not remove rows. So this time leaves out two jumps: a jump before the start, unless the
    // clock is trusted, and a jump ahead of the wall clock since the start.
    const wall_ms = Math.min(this.#clock.wall(), this.#expiry.sharedAt(from)) - this.#expiry.heldAt(from);
    const before = {
      deliveries_ms: wall_ms - this.#settings.retention_deliveries_ms,
      messages_ms: wall_ms - this.#settings.retention_messages_ms,
      idempotency_ms: wall_ms - IDEMPOTENCY_MS,
      future_ms: this.#clock.wall() + FUTURE_MS,
    };
    let after: PrunePlace | null = null;
    await this.#inSteps(async () => {
      const step = await deliveries.prune(before, ROWS_PER_STEP, REMOVING_MS, after);
      after = step.next;
      return after !== null;
    });
    const { future_ms } = before;
    const audit_times = { before_ms: wall_ms - this.#settings.retention_audit_ms, future_ms };
    await this.#inSteps(async () => {
      return (await this.#store.audit.prune(audit_times, ROWS_PER_STEP, this.#clock.wall())) > 0;
    });
    await this.#giveBack();
  }

  /**
   * Fails expired deliveries step by step, until all deliveries were checked. Returns how long the steps took. After a
   * step in which deliveries failed, there is a pause of the same length, so that requests need not wait long.
   */
  async #expire<Place>(
    from_place: (after: Place | null, shared_ms: number, wall_ms: number, hold: Hold) => Promise<Expired<Place>>,
  ): Promise<number> {
    let after: Place | null = null;
    let took_ms = 0;
    do {
      const from = this.#clock.now();
      const step: Expired<Place> = await from_place(
        after,
        this.#expiry.sharedAt(from),
        this.#clock.wall(),
        this.#expiry.holdAt(from),
      );
      after = step.next;
      const step_ms = this.#clock.now() - from;
      took_ms += step_ms;
      if (step.expired.length === 0) continue;
      this.#observer.expired(step.expired);
      if (step_ms > 0) await this.#pause(step_ms);
    } while (after !== null && !this.#stopped);
    return took_ms;
  }

  /**
   * Removes rows step by step, until there is nothing to remove.
   *
   * @param remove makes a step, and says whether another step may find rows
   */
  async #inSteps(remove: () => Promise<boolean>): Promise<void> {
    const from = this.#clock.now();
    while (!this.#stopped) {
      const step_from = this.#clock.now();
      if (!(await remove())) return;
      const now = this.#clock.now();
      const factor = now - from < REMOVING_SLOWLY_MS ? REMOVING_PAUSE_FACTOR : 1;
      if (now > step_from) await this.#pause((now - step_from) * factor);
    }
  }

  async #pause(ms: number): Promise<void> {
    await new Promise<void>((resolve) => void this.#clock.after(ms, resolve));
  }

  async #giveBack(): Promise<void> {
    const { file } = this.#store;
    if (file === undefined) return;
    let space = await file.space();
    if (!space.gives_back) return this.#reportEmpty(space);
    const until = this.#clock.now() + GIVING_BACK_MS_MAX;
    let has_given = false;
    while (space.free_pages > keptFree(space) && this.#clock.now() < until && !this.#stopped) {
      const from = this.#clock.now();
      const step = await file.giveBack(Math.min(PAGES_PER_STEP, space.free_pages - keptFree(space)), STEP_MS);
      if (step.given_back === 0) break;
      has_given = true;
      space = step;
      await this.#pause(PAUSE_FACTOR * Math.max(1, this.#clock.now() - from));
    }
    if (has_given && !this.#stopped) await file.cutOff();
  }

  #reportEmpty(space: FileSpace): void {
    const now = this.#clock.now();
    if (!isMostlyEmpty(space) || (this.#reported_at !== null && now - this.#reported_at < REPORT_AGAIN_MS)) return;
    this.#reported_at = now;
    this.#observer.isMostlyEmpty(space);
  }
}

function keptFree({ pages, free_pages }: FileSpace): number {
  return Math.max(FREE_PAGES_MIN, Math.ceil((pages - free_pages) * FREE_PART));
}

/** Whether the file should be rewritten. */
export function isMostlyEmpty({ page_bytes, pages, free_pages }: Omit<FileSpace, 'gives_back'>): boolean {
  return free_pages * page_bytes >= EMPTY_BYTES_MIN && free_pages > pages / 2;
}
