/** The parts of a scenario: the rows, which take turns, the figures to show, and the targets. */
import type { Bench, Figures } from '../measure/measure.ts';

export interface Row {
  name: string;
  /** Why this machine cannot measure the row; null when it can. */
  missing?: string | null;
  measure(bench: Bench, seconds: number): Promise<Figures>;
}

export interface Column {
  figure: string;
  title: string;
  /** Digits after the point. */
  digits?: number;
  /** Whether the column is shown only when some row has a value other than 0. */
  only_if_any?: boolean;
}

/**
 * Compares a figure of one row with a figure of another row, or with a number, in each round. The median of the rounds
 * counts.
 */
export interface Target {
  says: string;
  row: string;
  figure: string;
  /** What the figure is divided by; with `difference`, what is subtracted from it. */
  against?: { row: string; figure?: string };
  difference?: boolean;
  at_least?: number;
  at_most?: number;
}

export interface Scenario {
  name: string;
  title: string;
  columns: Column[];
  rows: Row[];
  targets: Target[];
}

export const MESSAGES: Column = { figure: 'messages_per_s', title: 'messages/s' };
export const PUSHES: Column = { figure: 'pushes_per_s', title: 'pushes/s' };
export const LATENCY: Column[] = [
  { figure: 'p50_ms', title: 'p50 ms', digits: 1 },
  { figure: 'p99_ms', title: 'p99 ms', digits: 1 },
];
export const CPU_PER_MESSAGE: Column = { figure: 'cpu_us_per_message', title: 'CPU µs/message' };
export const CPU_PER_PUSH: Column = { figure: 'cpu_us_per_push', title: 'CPU µs/push' };
export const LAG: Column = { figure: 'lag_p99_ms', title: 'loop lag p99 ms', digits: 1 };
export const MEMORY: Column = { figure: 'rss_peak_mib', title: 'peak RSS MiB' };
/** How many transactions PostgreSQL commits for a hundred messages. */
export const COMMITS: Column = { figure: 'commits_per_100', title: 'commits/100 messages', digits: 1 };
/** Figures that should be 0. */
export const FAULTS: Column[] = [
  { figure: 'missing', title: 'not arrived', only_if_any: true },
  { figure: 'refused', title: 'refused', only_if_any: true },
  { figure: 'out_of_order', title: 'out of order', only_if_any: true },
  { figure: 'repeated', title: 'repeated', only_if_any: true },
];
