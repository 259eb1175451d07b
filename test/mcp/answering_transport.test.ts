/** What `convoke mcp` keeps of a request that has its response. */
import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { PassThrough, Writable } from 'node:stream';
import { test } from 'node:test';
import { AnsweringTransport } from '../../src/mcp/stdio.ts';

test('a request that has its response leaves no listener behind, although the input stays open for days', async () => {
  const transport = new AnsweringTransport(new PassThrough(), new PassThrough());
  const { signal } = new AbortController();
  const written: boolean[] = [];
  for (let id = 1; id <= 3; id++) {
    transport.onAnswered({ id, signal }, (was_written) => written.push(was_written));
    assert.equal(getEventListeners(signal, 'abort').length, 1);
    await transport.send({ jsonrpc: '2.0', id, result: {} });
    assert.equal(getEventListeners(signal, 'abort').length, 0);
  }
  assert.deepEqual(written, [true, true, true]);
});

test('a request that is cancelled counts as not answered, once', () => {
  const transport = new AnsweringTransport(new PassThrough(), new PassThrough());
  const cancelled = new AbortController();
  const written: boolean[] = [];
  transport.onAnswered({ id: 1, signal: cancelled.signal }, (was_written) => written.push(was_written));
  cancelled.abort();
  assert.deepEqual(written, [false]);
  assert.equal(getEventListeners(cancelled.signal, 'abort').length, 0);
});

test('a response that the output did not take counts as not written, as when its reader has gone', async () => {
  const gone = new Writable({
    write: (_chunk, _encoding, done) => process.nextTick(done, new Error('write EPIPE')),
  }).on('error', () => {});
  const transport = new AnsweringTransport(new PassThrough(), gone);
  const written: boolean[] = [];
  transport.onAnswered({ id: 1, signal: new AbortController().signal }, (was_written) => written.push(was_written));
  await assert.rejects(transport.send({ jsonrpc: '2.0', id: 1, result: {} }), { message: 'write EPIPE' });
  assert.deepEqual(written, [false]);
});
