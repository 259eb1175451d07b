/** A table on a terminal: each column begins under its title, whatever the texts before it are written in. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { tableOf } from '../../src/cli/program/terminal.ts';

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
