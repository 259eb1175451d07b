import { StoreError } from '../store_error.ts';

/**
 * The work that a store does by itself. No call waits for it, so nobody but the log learns that it fails. The texts say
 * what follows, and what to do.
 */
const OWN_WORK = {
  sweep:
    'the sweep of deliveries failed; it is tried again. If it goes on failing, pending deliveries are found more and more slowly: correct what the error says',
  remove_runs:
    'what killed nodes left in the table runs could not be removed; it is tried again in an hour, and nothing waits for it',
  listen:
    'this node does not hear the other nodes, and learns late what they change; it is tried again. If it goes on failing, correct what the error says',
  read_changes:
    'what other nodes stored could not be read, so everything is looked at again. If it goes on failing, correct what the error says',
} as const;

export type OwnWork = keyof typeof OWN_WORK;

/** How often the failure of one kind of work is reported: as often as maintenance runs. */
const REPORT_EVERY_MS = 60_000;

/** What the log says when such work fails. */
export function describeFailure(work: OwnWork): string {
  return OWN_WORK[work];
}

/** Reports the failures of such work, each kind at most once in REPORT_EVERY_MS. */
export class OwnWorkFailures {
  readonly #report: (work: OwnWork, error: unknown) => void;
  readonly #now_ms: () => number;
  readonly #reported_at = new Map<OwnWork, number>();

  /** @param now_ms reads a clock that nobody can set */
  constructor(report: (work: OwnWork, error: unknown) => void, now_ms: () => number) {
    this.#report = report;
    this.#now_ms = now_ms;
  }

  /** Reports a failure, at most once in REPORT_EVERY_MS for each kind. A store that is being closed is no failure. */
  note(work: OwnWork, error: unknown): void {
    if (error instanceof StoreError && error.code === 'STORE_CLOSED') return;
    const now = this.#now_ms();
    if (now - (this.#reported_at.get(work) ?? -Infinity) < REPORT_EVERY_MS) return;
    this.#reported_at.set(work, now);
    this.#report(work, error);
  }
}
