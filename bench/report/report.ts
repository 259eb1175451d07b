/** Makes tables from figures: medians with the lowest and the highest value, and whether the targets are met. */
import { cpus, release, totalmem } from 'node:os';
import { median } from '../measure/figures.ts';
import type { Column, Scenario, Target } from '../scenarios/scenario.ts';

export interface RowResult {
  name: string;
  /** Why the row was not measured; null when it was. */
  missing: string | null;
  /** One value for each round; null where the round failed. */
  figures: Record<string, (number | null)[]>;
}

export interface TargetResult {
  says: string;
  /** Null when a row that the target compares was not measured. */
  value: number | null;
  met: boolean | null;
}

export interface ScenarioResult {
  name: string;
  title: string;
  date: string;
  /** The processors, the memory and the systems that made the figures. */
  machine: string;
  rounds: number;
  seconds: number;
  columns: Column[];
  rows: RowResult[];
  targets: TargetResult[];
}

export function judge(target: Target, rows: readonly RowResult[]): TargetResult {
  const values = roundsOf(rows, target.row, target.figure);
  const { against } = target;
  const others = against === undefined ? null : roundsOf(rows, against.row, against.figure ?? target.figure);
  const compared = values.flatMap((value, round) => {
    const other = others === null ? 1 : others[round];
    if (value === null || other === null || other === undefined) return [];
    return [target.difference === true ? value - other : value / other];
  });
  if (compared.length === 0) return { says: target.says, value: null, met: null };
  const value = median(compared);
  const met = value >= (target.at_least ?? -Infinity) && value <= (target.at_most ?? Infinity);
  return { says: target.says, value, met };
}

function roundsOf(rows: readonly RowResult[], name: string, figure: string): (number | null)[] {
  return rows.find((row) => row.name === name)?.figures[figure] ?? [];
}

function machine(): string {
  const { model } = cpus()[0]!;
  return `${cpus().length} × ${model}, ${Math.round(totalmem() / 2 ** 30)} GiB, Linux ${release()}, Node ${process.versions.node}`;
}

export function resultOf(scenario: Scenario, rows: RowResult[], rounds: number, seconds: number): ScenarioResult {
  const { name, title, columns, targets } = scenario;
  const date = new Date().toISOString();
  const judged = targets.map((target) => judge(target, rows));
  return { name, title, date, machine: machine(), rounds, seconds, columns, rows, targets: judged };
}

/** A scenario as Markdown: a table, then its targets. */
export function markdownOf(result: ScenarioResult): string {
  const { name, title, columns, rows, targets, rounds, seconds, date, machine } = result;
  const shown = columns.filter(
    ({ figure, only_if_any }) =>
      only_if_any !== true || rows.some((row) => row.figures[figure]?.some((value) => value)),
  );
  const table = [
    ['', ...shown.map((column) => column.title)],
    ...rows.map((row) => [row.name, ...shown.map((column) => cellOf(row, column))]),
  ];
  const widths = table[0]!.map((_, i) => Math.max(...table.map((cells) => cells[i]!.length), 3));
  const line = (cells: string[]): string =>
    `| ${cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join(' | ')} |`;
  const rule = `| ${widths.map((width, i) => (i === 0 ? '-'.repeat(width) : `${'-'.repeat(width - 1)}:`)).join(' | ')} |`;
  const notes = rows.flatMap((row) => (row.missing === null ? [] : [`- ${row.name}: ${row.missing}`]));
  return [
    `### (${name}) ${title}`,
    '',
    `${date.slice(0, 16).replace('T', ' ')} UTC, ${rounds} rounds of ${seconds} s; median (least to most). ${machine}.`,
    '',
    line(table[0]!),
    rule,
    ...table.slice(1).map(line),
    '',
    ...notes,
    ...(notes.length > 0 ? [''] : []),
    ...targets.map((target) => `- ${describeTarget(target)}`),
    ...(targets.length > 0 ? [''] : []),
  ].join('\n');
}

function cellOf(row: RowResult, { figure, digits = 0 }: Column): string {
  const values = (row.figures[figure] ?? []).filter((value): value is number => Number.isFinite(value));
  if (values.length === 0) return '–';
  const say = (value: number): string =>
    value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const middle = say(median(values));
  return values.length === 1 ? middle : `${middle} (${say(Math.min(...values))}–${say(Math.max(...values))})`;
}

function describeTarget({ says, value, met }: TargetResult): string {
  if (value === null) return `${says}: not measured`;
  return `${says}: ${value.toFixed(2)}, ${met === true ? 'met' : '**not met**'}`;
}
