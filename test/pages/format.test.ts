/** Values in words: pages import nothing of the service, so each side has its words, and here they are compared. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { durationInWords as durationInCommands } from '../../src/cli/program/format.ts';
import { durationInWords as durationInPages } from '../../web/src/format.ts';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

test('pages and commands say the same of a duration', () => {
  const turns = [1, 999, SECOND, 10 * SECOND, 120 * SECOND, 2 * HOUR, 48 * HOUR, 400 * HOUR];
  for (const at of turns) {
    for (const ms of [at - 1, at, at + 1, at * 1.5].filter((each) => each >= 1)) {
      assert.equal(durationInPages(ms), durationInCommands(ms), `${ms} ms`);
    }
  }
});
