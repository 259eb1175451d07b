/**
 * Invisible characters in an id, or in another text that somebody chose, become visible: the pages show their code, a
 * terminal shows a sign.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { ConvokeError } from '@convoke/sdk';
import { failureOf } from '../../src/cli/program/api.ts';
import { jsonOf, plain } from '../../src/cli/program/terminal.ts';
import { shown } from '../../web/src/format.ts';

const UNSEEN: [string, string, string][] = [
  ['a space of no width', 'a\u200bb', 'a[U+200B]b'],
  ['a joiner between letters', 'a\u200db', 'a[U+200D]b'],
  ['a byte order mark', '\ufeffadmin', '[U+FEFF]admin'],
  ['a soft hyphen', 'ad\u00admin', 'ad[U+00AD]min'],
  ['what turns text around', '\u202enimda', '[U+202E]nimda'],
  ['what isolates it', '\u2066x\u2069', '[U+2066]x[U+2069]'],
  ['a mark of direction', 'x\u200e', 'x[U+200E]'],
  ['a filler of Hangul', 'a\u3164b', 'a[U+3164]b'],
  ['a tag', 'a\u{e0041}b', 'a[U+E0041]b'],
  ['a separator of lines', 'x\u2028y', 'x[U+2028]y'],
  ['a joiner between letters that do not join', 'a\u200cb', 'a[U+200C]b'],
  ['two joiners between letters', 'م\u200c\u200cخ', 'م[U+200C][U+200C]خ'],
  ['a joiner at the end', 'م\u200c', 'م[U+200C]'],
  ['the presentation of a letter', 'a\ufe0e\ufe0f', 'a[U+FE0E][U+FE0F]'],
  ['the presentation of a digit without a keycap', '1\ufe0f', '1[U+FE0F]'],
  ['tags that are no flag', '🏴\u{e0061}\u{e007f}', '🏴[U+E0061][U+E007F]'],
  ['a control character of C1', 'x\u009by', 'x[U+009B]y'],
];

const SEEN = [
  'café',
  'анна',
  '山田',
  '👨‍👩‍👧',
  '👩🏽‍🚀',
  '❤️‍🔥',
  'a b',
  // Persian, Hindi and Sinhala write joiners between letters.
  'می\u200cخواهم',
  'क्\u200dष',
  'ශ්\u200dරී ලංකා',
  '1\ufe0f\u20e3 first',
  '#\ufe0f\u20e3',
  '*\ufe0f\u20e3',
  '☎\ufe0e',
  // England, Scotland, Wales.
  ...['gbeng', 'gbsct', 'gbwls'].map((name) => `🏴${tags(name)}\u{e007f}`),
];

function tags(name: string): string {
  return String.fromCodePoint(...Array.from(name, (letter) => 0xe0000 + letter.codePointAt(0)!));
}

describe('invisible characters', () => {
  for (const [what, text, by_code] of UNSEEN) {
    test(`is shown: ${what}`, () => {
      assert.equal(shown(text), by_code);
      // `plain` replaces white space by a space, and two of these characters are white space. A sign replaces the
      // others.
      assert.match(
        plain(text),
        what === 'a separator of lines' || what === 'a byte order mark' ? /x y|^admin/ : /\ufffd/,
      );
    });

    test(`reaches no terminal by JSON, and is the same JSON: ${what}`, () => {
      const json = jsonOf({ [text]: text }, 0);
      assert.deepEqual(JSON.parse(json), { [text]: text });
      if (!/\u3164|\ufe0e|\ufe0f|\u{e0041}|م|🏴/u.test(text)) assert.match(json, /^[\x20-\x7e]*$/);
    });
  }

  for (const text of SEEN) {
    test(`leaves what is seen: ${text}`, () => {
      assert.equal(shown(text), text);
      assert.equal(plain(text), text);
      assert.equal(JSON.parse(jsonOf(text)), text);
    });
  }
});

test('the text of a refusal is one line that no terminal obeys, whatever responds', () => {
  const detail = 'bad \u001b]0;title\u0007\u202e thing\nconvoke: another line';
  for (const code of ['unexpected_response', 'invalid_fields', 'x\u001b[2J']) {
    const { message } = failureOf(new ConvokeError(code, detail, { status: 422 }));
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(message, /[\p{Cc}\u202e]/u);
  }
});
