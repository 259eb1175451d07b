/** What commands print on a terminal: tables whose columns begin under their titles, JSON, and progress. */
import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { jsonOf, noteProgress, print, printJson, printTable, tableOf } from '../../src/cli/program/terminal.ts';

/** The lines of a table, without its titles. */
function shown(texts: readonly string[], width_max: number): string[] {
  const columns = [
    { title: 'TEXT', text: (text: string) => text, gives_way: true },
    { title: 'NEXT', text: () => '|' },
  ];
  return tableOf(texts, columns, width_max).slice(1).map(stripVTControlCharacters);
}

test('a character that takes two columns of a terminal counts as two', () => {
  assert.deepEqual(
    shown(['latin text', '会議の資料', '회의 자료', 'ｶﾅ', '，ok', '🎉🎉', '👩🏽‍🚀', '❤️', '🇯🇵', 'café', '“…”'], Infinity),
    [
      'latin text  |',
      '会議の資料  |',
      '회의 자료   |',
      'ｶﾅ          |',
      '，ok        |',
      '🎉🎉        |',
      '👩🏽‍🚀          |',
      '❤️          |',
      '🇯🇵          |',
      'café        |',
      '“…”         |',
    ],
  );
});

test('a text is cut to the columns of a narrow terminal, also in the middle of a wide character', () => {
  assert.deepEqual(shown(['会議の資料を準備する', 'x会議の資料を準備する', '0123456789abcdefghij'], 19), [
    '会議の資料を準…   |',
    'x会議の資料を準…  |',
    '0123456789abcde…  |',
  ]);
});

test('a table has as many rows as there are', () => {
  const rows = Array.from({ length: 130_000 }, () => '');
  assert.equal(tableOf(rows, [{ title: 'N', text: String }], Infinity).length, 130_001);
});

/** What reaches the terminal, from stdout and stderr. */
function onTerminal(t: TestContext, columns: number): () => string {
  let written = '';
  for (const stream of [process.stdout, process.stderr]) {
    const { isTTY, columns: before } = stream;
    Object.assign(stream, { isTTY: true, columns });
    t.after(() => Object.assign(stream, { isTTY, columns: before }));
    t.mock.method(stream, 'write', (text: string) => ((written += text), true));
  }
  return () => {
    t.mock.restoreAll();
    return written;
  };
}

test('JSON of a list is written item by item, and is the same JSON', (t) => {
  for (const value of [[], [1], [[], [{}], { a: [1, { b: 'x\ny\u2028' }], c: {} }, null, 's'], { a: [1, 2] }]) {
    const writes: string[] = [];
    t.mock.method(process.stdout, 'write', (text: string) => writes.push(text) > 0);
    printJson(value);
    t.mock.restoreAll();
    assert.equal(writes.join(''), `${jsonOf(value)}\n`);
    assert.equal(writes.length, Array.isArray(value) ? Math.max(1, value.length) : 1);
  }
});

test('nothing is cut on a terminal that does not know its width', (t) => {
  const texts = ['0123456789abcdefghijklmnopqrstuvwxyz'];
  const column = { title: 'TEXT', text: (text: string) => text, gives_way: true };
  const written = onTerminal(t, 0);
  printTable(texts, [column]);
  assert.ok(written().includes(texts[0]!));
});

test('nothing of the progress stays behind the text that follows it', (t) => {
  const written = onTerminal(t, 80);
  noteProgress('queued again: 19500 of 20000');
  print('queued again: 20000');
  print('next');
  // oxlint-disable-next-line no-control-regex
  assert.match(written(), /of 20000\u001b\[K\r\u001b\[Kqueued again: 20000\nnext\n$/);
});
