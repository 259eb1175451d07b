import { styleText } from 'node:util';
import { EXIT } from './exit.ts';

type Style = Parameters<typeof styleText>[0];

/** A column that can be cut keeps at least this many columns of the terminal. */
const COLUMN_WIDTH_MIN = 16;

/** Whether the command continues when nobody reads its output any more. */
let goes_on_unread = false;

/**
 * Lets the command finish its work when nobody reads its output any more. In `convoke connect … | tee log`, Ctrl-C ends
 * tee at once, while pushes are in progress.
 */
export function goOnUnread(): void {
  goes_on_unread = true;
}

/** Handles the errors of stdout and stderr, which otherwise end the process. Call it once. */
export function watchOutput(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (goes_on_unread) return;
    // `convoke deliveries | head` closes the pipe early; that is no failure. But a failure that `doctor` found keeps
    // its exit code.
    if (error.code === 'EPIPE') process.exit(process.exitCode ?? EXIT.ok);
    note(`convoke: the output could not be written whole: ${error.message}`);
    process.exit(EXIT.failed);
  });
  // Notes are for people: a command does not fail because nobody reads them.
  process.stderr.on('error', () => {});
}

/** Whether stdout is a terminal. */
export function isTerminal(): boolean {
  return process.stdout.isTTY;
}

/** Writes a line to stdout. */
export function print(line = ''): void {
  removeProgress();
  process.stdout.write(`${line}\n`);
}

/** Writes a value to stdout for programs; with `indent` 0 on one line. */
export function printJson(value: unknown, indent = 2): void {
  if (!Array.isArray(value) || value.length === 0 || indent === 0) return print(jsonOf(value, indent));
  // Item by item: the text of a million deliveries is longer than a string can be.
  const margin = ' '.repeat(indent);
  value.forEach((item: unknown, i) => {
    const text = margin + jsonOf(item, indent).replaceAll('\n', `\n${margin}`);
    print(`${i === 0 ? '[\n' : ''}${text}${i === value.length - 1 ? '\n]' : ','}`);
  });
}

/** A value as JSON, with escapes. */
export function jsonOf(value: unknown, indent = 2): string {
  return escaped(JSON.stringify(value, null, indent));
}

/**
 * The same JSON with escapes for three kinds of characters: those that a terminal would obey, that reverse the text, or
 * that are invisible.
 */
export function escaped(json: string): string {
  return json.replaceAll(
    /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Writes a line for people to stderr; the result goes to stdout. A sign replaces each invisible character. */
export function note(line: string): void {
  const text = line.replaceAll(UNSEEN, (character) => (character === '\n' ? character : '\ufffd'));
  removeProgress();
  process.stderr.write(`${text}\n`);
}

let is_progress_shown = false;

/** Shows progress on one line, which goes away before the next text; prints nothing when stderr is not a terminal. */
export function noteProgress(text: string): void {
  if (!process.stderr.isTTY) return;
  is_progress_shown = true;
  process.stderr.write(`\r${text}\u001b[K\r`);
}

function removeProgress(): void {
  if (!is_progress_shown) return;
  is_progress_shown = false;
  process.stderr.write('\u001b[K');
}

/** Adds colours only on a terminal, and only when NO_COLOR does not forbid them. */
export function styled(style: Style, text: string): string {
  return styleText(style, text, { stream: process.stdout });
}

/** Letters and signs of scripts that join. Between two of them, U+200C and U+200D change what is seen. */
const JOINING = String.raw`[[\p{L}\p{M}]&&[\p{scx=Arab}\p{scx=Syrc}\p{scx=Nkoo}\p{scx=Mong}\p{scx=Deva}\p{scx=Beng}\p{scx=Guru}\p{scx=Gujr}\p{scx=Orya}\p{scx=Taml}\p{scx=Telu}\p{scx=Knda}\p{scx=Mlym}\p{scx=Sinh}\p{scx=Mymr}\p{scx=Khmr}]]`;

/**
 * The tag characters of Unicode in the flags of England, Scotland and Wales. Unicode recommends no other flags with tag
 * characters.
 */
const FLAGS = String.raw`\u{e0067}\u{e0062}(?:\u{e0065}\u{e006e}\u{e0067}|\u{e0073}\u{e0063}\u{e0074}|\u{e0077}\u{e006c}\u{e0073})\u{e007f}`;

/** Characters that are invisible alone, but change what is seen before or after them. */
const SEEN = [
  String.raw`(?<=${JOINING})[\u200c\u200d](?=${JOINING})`,
  String.raw`(?<=[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f])[\u200d\ufe0f]`,
  String.raw`(?<=\p{Extended_Pictographic})\ufe0e`,
  String.raw`(?<=[0-9#*])\ufe0f(?=\u20e3)`,
  String.raw`(?<=\u{1f3f4}(?=${FLAGS})[\u{e0062}-\u{e0077}]{0,5})[\u{e0062}-\u{e007f}]`,
].join('|');

/**
 * Characters that a terminal would obey, that reverse the text, or that are invisible. web/src/format.ts has the same
 * rule; test/cli/unseen.test.ts tests both.
 */
const UNSEEN = new RegExp(String.raw`(?!${SEEN})[\p{Default_Ignorable_Code_Point}\p{Cc}\u2028\u2029]`, 'gv');

/** Text from elsewhere, such as a response or a name, on one line. A sign replaces each invisible character. */
export function plain(text: string): string {
  return text.replaceAll(/\s+/g, ' ').replaceAll(UNSEEN, '\ufffd').trim();
}

export interface Column<Row> {
  title: string;
  text: (row: Row) => string;
  style?: (row: Row) => Style | null;
  /** Whether the column is cut when the terminal is too narrow. */
  gives_way?: boolean;
}

/**
 * Prints rows under titles. Columns are as wide as their texts. If the terminal is too narrow, some columns are cut.
 */
export function printTable<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): void {
  // A terminal that does not know its width says that it has no columns.
  const width_max = isTerminal() ? process.stdout.columns || Infinity : Infinity;
  tableOf(rows, columns, width_max).forEach((line) => print(line));
}

/** The lines of a table for a terminal with this many columns. */
export function tableOf<Row>(rows: readonly Row[], columns: readonly Column<Row>[], width_max: number): string[] {
  const cells = rows.map((row) => columns.map((column) => plain(column.text(row))));
  // Not `Math.max(...widths)`: a call with more than about 120,000 arguments fails.
  const widths = columns.map(({ title }, i) =>
    cells.reduce((width, line) => Math.max(width, widthOfText(line[i]!)), title.length),
  );
  narrow(widths, columns, width_max);
  const titles = styled('dim', joined(columns.map(({ title }, i) => fit(title, widths[i]!))));
  const lines = rows.map((row, at) => {
    const line = columns.map((column, i) => {
      const text = fit(cells[at]![i]!, widths[i]!);
      const style = column.style?.(row) ?? null;
      return style === null ? text : styled(style, text);
    });
    return joined(line);
  });
  return [titles, ...lines];
}

/** Prints `name  value` lines, the values under each other. */
export function printFields(fields: Record<string, string>): void {
  const width = Math.max(...Object.keys(fields).map((name) => name.length));
  for (const [name, value] of Object.entries(fields)) {
    print(joined([styled('dim', name.padEnd(width)), plain(value)]));
  }
}

function narrow(widths: number[], columns: readonly Column<never>[], width_max: number): void {
  let excess = widths.reduce((sum, width) => sum + width + 2, -2) - width_max;
  columns.forEach(({ gives_way }, i) => {
    if (gives_way !== true || excess <= 0) return;
    const width = Math.max(Math.min(COLUMN_WIDTH_MIN, widths[i]!), widths[i]! - excess);
    excess -= widths[i]! - width;
    widths[i] = width;
  });
}

/** Cuts or fills a text, so that it takes this many columns of the terminal. */
function fit(text: string, width: number): string {
  if (IS_NARROW.test(text)) return text.length > width ? `${text.slice(0, width - 1)}…` : text.padEnd(width);
  const chars = charsOf(text);
  const end = widthOf(chars) > width ? '…' : '';
  let free = width - end.length;
  const count = chars.findIndex((char) => (free -= widthOf([char])) < 0);
  if (count === -1) return text + ' '.repeat(free);
  free += widthOf([chars[count]!]);
  return chars.slice(0, count).join('') + end + ' '.repeat(free);
}

function joined(cells: string[]): string {
  return cells.join('  ').trimEnd();
}

/**
 * Made only when a table is printed, because it takes 20 ms and 3.5 MiB, which a start of the service does not need.
 */
let segmenter: Intl.Segmenter | null = null;

/** Splits a text into the characters that people count: an emoji of several code points is one. */
function charsOf(text: string): string[] {
  segmenter ??= new Intl.Segmenter();
  return Array.from(segmenter.segment(text), ({ segment }) => segment);
}

/**
 * The beginnings of characters that take two columns of a terminal: those of East Asia that are wide or full-width in
 * Unicode's EastAsianWidth.txt, and emoji. U+FE0F makes an emoji of another sign.
 */
const WIDE =
  /^(?:[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe1f\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{16fe0}-\u{18dff}\u{1aff0}-\u{1b2ff}\u{1f200}-\u{1f265}\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}|.\ufe0f)/u;

/** A text in which each letter takes one column. The segmenter would take 60 ms for such a text of 256 KiB. */
const IS_NARROW = /^[\x20-\x7e]*$/;

function widthOfText(text: string): number {
  return IS_NARROW.test(text) ? text.length : widthOf(charsOf(text));
}

function widthOf(chars: readonly string[]): number {
  return chars.reduce((sum, char) => sum + (WIDE.test(char) ? 2 : 1), 0);
}
