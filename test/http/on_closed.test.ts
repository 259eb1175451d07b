import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { isWritten } from '../../src/http/on_closed.ts';

/** As Node 22 leaves it when the connection breaks while the response is written. */
const cut = { writableFinished: true, req: { socket: { destroyed: true } } } as ServerResponse;
const whole = { writableFinished: true, req: { socket: { destroyed: false } } } as ServerResponse;

test('a response counts as written only while its connection stands', () => {
  assert.equal(isWritten(cut), false);
  assert.equal(isWritten(whole), true);
});
