/** The recent counts of the service: the data of the charts. */
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ConvokeError, ServiceHistory } from '@convoke/sdk';
import { errorOf } from './queries.ts';
import { client } from './service.ts';
import { type Span, SPANS } from './spans.ts';

export const COUNTS = ['accepted', 'delivered', 'failed_attempts', 'failed'] as const;
const DURATIONS = ['p50_ms', 'p95_ms'] as const;

/**
 * The steps of a span, up to now. Null means unknown: the line has a gap there, not a zero. A duration is undefined
 * where nothing was delivered.
 */
export type Points = { at: number[]; step_s: number } & Record<(typeof COUNTS)[number], (number | null)[]> &
  Record<(typeof DURATIONS)[number], (number | null | undefined)[]>;

/** The steps that have arrived, by the second in which each began. */
class Steps {
  readonly #span: Span;
  readonly #rows = new Map<number, Record<string, number | undefined>>();
  #step_s = 1;
  #ends_at: string | undefined;
  /** When the last response arrived, on the clock of this page, which may differ from the clock of the service. */
  #read_at = 0;

  constructor(span: Span) {
    this.#span = span;
  }

  /** Asks for the steps that have ended since the last response. */
  async read(): Promise<void> {
    const since = this.#ends_at;
    const history = await client.getHistory({ span: this.#span, ...(since !== undefined && { since }) });
    this.#take(history);
  }

  #take(history: ServiceHistory): void {
    this.#step_s = history.step_s;
    this.#ends_at = history.ends_at;
    this.#read_at = performance.now();
    const first_s = this.#stepAt(Date.parse(history.starts_at) / 1000);
    for (const i of history.accepted.keys()) {
      const row: Record<string, number | undefined> = {};
      for (const name of COUNTS) row[name] = history[name][i]! / history.step_s;
      for (const name of DURATIONS) row[name] = history[name][i] ?? undefined;
      this.#rows.set(first_s + i * history.step_s, row);
    }
    const oldest_s = Date.parse(history.ends_at) / 1000 - SPANS[this.#span].span_s - history.step_s;
    for (const at of this.#rows.keys()) if (at < oldest_s) this.#rows.delete(at);
  }

  /**
   * Places a step at the nearest multiple of the length of a step. After somebody has set the clock of the service, its
   * steps no longer begin at such multiples.
   */
  #stepAt(second: number): number {
    return Math.round(second / this.#step_s) * this.#step_s;
  }

  /** The steps up to now. While the service does not respond, a gap at the right end stands for the missing steps. */
  points(): Points {
    const step_s = this.#step_s;
    const { span_s, every_ms } = SPANS[this.#span];
    const points: Points = {
      at: [],
      step_s,
      accepted: [],
      delivered: [],
      failed_attempts: [],
      failed: [],
      p50_ms: [],
      p95_ms: [],
    };
    const silent_ms = performance.now() - this.#read_at;
    const newest_s = Date.parse(this.#ends_at ?? '') / 1000;
    const end_s = this.#stepAt(newest_s) + (silent_ms > 3 * every_ms ? this.#stepAt(silent_ms / 1000) : 0);
    for (let at = end_s - span_s; at < end_s; at += step_s) {
      const row = this.#rows.get(at);
      points.at.push(at);
      for (const name of COUNTS) points[name].push(row?.[name] ?? null);
      for (const name of DURATIONS) points[name].push(row === undefined ? null : row[name]);
    }
    return points;
  }
}

/** The steps of each span stay while the page is open, so that a view is not empty when somebody opens it again. */
const kept = new Map<Span, Steps>();

/** Forgets everything: the next session may belong to another person. */
export function forgetHistory(): void {
  kept.clear();
}

interface HistoryRead {
  /** Counts per second, and durations in milliseconds. Null until the first response. */
  points: Points | null;
  /** Why the last request failed. */
  problem: ConvokeError | null;
}

/** Asks for the steps of a span as they end, while somebody sees the page. Null: asks for no steps. */
export function useHistory(span: Span | null): HistoryRead {
  const [, draw] = useState({});
  const problem = useRef<ConvokeError | null>(null);
  useEffect(() => {
    if (span === null) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let is_left = false;
    const ask = async (): Promise<void> => {
      if (!document.hidden) {
        const steps = kept.get(span) ?? new Steps(span);
        try {
          await steps.read();
          // Keeps nothing if the view was left during the request: the session may have ended, and `forgetHistory` must
          // not be undone.
          if (!is_left) kept.set(span, steps);
          problem.current = null;
        } catch (error) {
          problem.current = errorOf(error);
        }
        if (!is_left) draw({});
      }
      // A key that sees only a part of the service will be refused again.
      if (!is_left && problem.current?.code !== 'not_permitted') timer = setTimeout(ask, SPANS[span].every_ms);
    };
    void ask();
    return () => {
      is_left = true;
      clearTimeout(timer);
    };
  }, [span]);
  return { points: (span !== null && kept.get(span)?.points()) || null, problem: problem.current };
}
