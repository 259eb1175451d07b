/** Slow clients: the service waits for them only for a limited time, and other clients do not wait. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { RawClient, describeAnswers } from '../support/raw_client.ts';
import {
  assertAnswersAsBefore,
  BODY,
  chunked,
  framed,
  head,
  HEARTBEAT,
  HOST,
  JSON_TYPE,
  useControl,
} from '../support/raw_requests.ts';
import { useService } from '../support/service.ts';
import { beforeTimer } from '../support/wait.ts';

describe('a slow client', { concurrency: true }, () => {
  const service = useService({ max_message_bytes: '4194304' });
  const control = useControl();

  /** Sends bytes, and returns the response and how long it took. */
  async function slow(t: TestContext, bytes: string): Promise<{ outcome: string; took_ms: number }> {
    const client = new RawClient(service.url);
    t.after(() => client.destroy());
    const started_ms = performance.now();
    client.write(bytes);
    const outcome = describeAnswers(await client.read());
    return { outcome, took_ms: performance.now() - started_ms };
  }

  for (const [name, bytes] of [
    ['says nothing', ''],
    ['stops within the request line', 'GET /hea'],
    ['stops within the headers', `GET /healthz HTTP/1.1\r\n${HOST}x: `],
    ['stops before the body', framed('content-length: 14\r\n', '')],
    ['stops within the body', framed('content-length: 14\r\n', '{"message"')],
    ['stops within a chunk', chunked('e\r\n{"message"')],
    ['stops before the last chunk', chunked(`e\r\n${BODY}\r\n`)],
    ['stops within a body that the route does not take', head('POST', HEARTBEAT, `${JSON_TYPE}content-length: 2\r\n`)],
    ['stops within a large body', framed('content-length: 200000\r\n', ' '.repeat(50_000))],
  ] as const) {
    test(`that ${name} gets 408 after 5 seconds`, async (t) => {
      const { outcome, took_ms } = await beforeTimer('the answer', 6_800, slow(t, bytes));
      assert.equal(outcome, '408 request_timeout');
      assert.ok(took_ms > 4_500, `${took_ms} ms`);
      await assertAnswersAsBefore(service);
    });
  }

  test('that sends a byte at a time, too', async (t) => {
    const client = new RawClient(service.url);
    t.after(() => client.destroy());
    client.write(framed('content-length: 1000\r\n', ''));
    const drip = setInterval(() => client.write(' '), 100);
    t.after(() => clearInterval(drip));
    assert.equal(describeAnswers(await client.read()), '408 request_timeout');
  });

  test('that is slow but makes progress is read to the end', async (t) => {
    const client = new RawClient(service.url);
    t.after(() => client.destroy());
    const body = `{"message":{"s":"${'x'.repeat(2_000_000)}"}}`;
    client.write(framed(`content-length: ${body.length}\r\n`, ''));
    const started_ms = performance.now();
    let written = 0;
    const pieces = setInterval(() => {
      client.write(body.slice(written, (written += 150_000)));
      if (written >= body.length) clearInterval(pieces);
    }, 450);
    t.after(() => clearInterval(pieces));
    assert.equal(describeAnswers(await client.read()), '201');
    assert.ok(performance.now() - started_ms > 5_500);
  });

  test('control: is waited for without our limits', async (t) => {
    const waiting = [framed('content-length: 14\r\n', '{"message"'), `GET /healthz HTTP/1.1\r\n${HOST}`].map(
      (bytes) => {
        const client = new RawClient(control.url);
        t.after(() => client.destroy());
        client.write(bytes);
        return client;
      },
    );
    // Waits as long as the service takes to close such a connection.
    await slow(t, framed('content-length: 14\r\n', ''));
    assert.deepEqual(
      waiting.map(({ answers, closed }) => [describeAnswers(answers), closed]),
      [
        ['', false],
        ['', false],
      ],
    );
  });
});
