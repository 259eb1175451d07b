/**
 * The transport with machines that make errors, stop responding, or attack. Every push ends in time with the right
 * outcome, keeps little of the response, and leaves no socket open. The sockets are real. The deadline is short where
 * its length does not matter.
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import type { RequestListener, ServerResponse } from 'node:http';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import { describe, test } from 'node:test';
import type { TestContext } from 'node:test';
import { createServer as createTlsServer } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import { gzipSync } from 'node:zlib';
import { Client } from 'undici';
import { parseCidr } from '../../src/domain/address.ts';
import type { EgressMode, EgressPolicy } from '../../src/domain/address.ts';
import type { Outcome } from '../../src/domain/outcome.ts';
import type { Push, PushResult, StageReport } from '../../src/delivery/transport/transport.ts';
import { RESPONSE_BYTES_MAX } from '../../src/delivery/transport/response.ts';
import { createWebhookTransport } from '../../src/delivery/transport/webhook_transport.ts';
import type { WebhookTransport, WebhookTransportOptions } from '../../src/delivery/transport/webhook_transport.ts';
import { freePort } from '../support/free_port.ts';
import { startScriptedDns, together } from '../support/scripted_dns.ts';
import { STREAM_BYTES_MAX } from '../../src/domain/runtimes/event_stream.ts';
import { beforeTimer, until, WAIT_MS_MAX } from '../support/wait.ts';

/** Long enough for a status line to arrive, on a busy machine too, and short enough for a test to wait. */
const SHORT_DEADLINE_MS = 1000;
/** The promise: the deadline is 5 s, and every attempt ends within 5.1 s. */
const LATE_MS_MAX = 100;
const CONTINUE = 'HTTP/1.1 100 Continue\r\n\r\n';
const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';

const policyOf = (mode: EgressMode, ...allow: string[]): EgressPolicy => ({
  mode,
  allow: allow.map((text) => parseCidr(text)!),
  allow_http: true,
});

function transportFor(t: TestContext, options: Partial<WebhookTransportOptions> = {}): WebhookTransport {
  const transport = createWebhookTransport({ policy: policyOf('local'), ...options });
  t.after(() => transport.close());
  return transport;
}

const pushTo = (url: string, rest: Partial<Push> = {}): Push => ({
  instance_id: 'machine',
  url,
  headers: { 'content-type': 'application/json', authorization: 'Bearer top-secret' },
  body: Buffer.from('{"event":"message"}'),
  success_statuses: '200',
  ...rest,
});

interface Receiver {
  url: string;
  port: number;
  /** Every connection that was ever made to the machine. */
  sockets: Socket[];
  /** Resolves when all connections are closed. */
  allClosed(): Promise<void>;
}

/** Resolves when the socket is closed, also after an error, at which `once` would reject. */
async function closed(socket: Socket): Promise<void> {
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
}

async function listening(t: TestContext, server: Server, scheme = 'http'): Promise<Receiver> {
  const sockets: Socket[] = [];
  server.on('connection', (socket: Socket) => {
    sockets.push(socket);
    socket.on('error', () => {});
  });
  server.on('tlsClientError', () => {});
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    url: `${scheme}://127.0.0.1:${port}/hook`,
    port,
    sockets,
    allClosed: async () => {
      await Promise.all(sockets.map(closed));
    },
  };
}

/** A machine that runs the script for each connection. */
const machine = (t: TestContext, script: (socket: Socket, connection: number) => void) => {
  let connections = 0;
  return listening(
    t,
    createServer({ noDelay: true }, (socket) => {
      // The system does not report that the other side closed a socket that nobody reads.
      socket.resume();
      script(socket, ++connections);
    }),
  );
};

/** A machine that waits for a request and then runs the script. */
const answering = (t: TestContext, script: (socket: Socket, request: number, connection: number) => void) => {
  let requests = 0;
  return machine(t, (socket, connection) => onRequests(socket, () => script(socket, ++requests, connection)));
};

const httpMachine = (t: TestContext, listener: RequestListener) => listening(t, createHttpServer(listener));

/** Calls back for every complete request with a content-length. */
function onRequests(socket: Socket, onRequest: (text: string) => void): void {
  let pending = '';
  socket.on('data', (chunk) => {
    pending += chunk.toString('latin1');
    for (;;) {
      const head_end = pending.indexOf('\r\n\r\n') + 4;
      if (head_end === 3) return;
      const end = head_end + Number(/content-length: (\d+)/i.exec(pending)?.[1] ?? 0);
      if (pending.length < end) return;
      const request = pending.slice(0, end);
      pending = pending.slice(end);
      onRequest(request);
    }
  });
}

/** Writes as much as the other side reads, without end. */
function flood(socket: Socket, chunk: string | Buffer): void {
  const write = () => {
    while (!socket.destroyed && socket.write(chunk));
  };
  socket.on('drain', write);
  write();
}

/** Writes one piece after the other, with a pause that is shorter than any deadline. */
function drip(socket: Socket, pieces: Iterable<string>, pause_ms = 20): void {
  const iterator = pieces[Symbol.iterator]();
  const timer = setInterval(() => {
    const { value, done } = iterator.next();
    if (done || socket.destroyed) clearInterval(timer);
    else socket.write(value);
  }, pause_ms);
  socket.on('close', () => clearInterval(timer));
}

function* forever(piece: string): Iterable<string> {
  for (;;) yield piece;
}

const outcomeOf = ({ outcome, status_code }: PushResult): [Outcome, number | null] => [outcome, status_code];
const stagesOf = (stages: StageReport[]) => stages.map(({ stage, ok }) => `${stage} ${ok ? 'ok' : 'failed'}`);

/** Rejects when a push does not end by its deadline. */
const inTime = (pushed: Promise<PushResult>, deadline_ms: number): Promise<PushResult> =>
  beforeTimer('the push', deadline_ms + LATE_MS_MAX, pushed);

/** Checks what must hold after every push, whatever the machine did. */
function assertBounded(result: PushResult): void {
  assert.ok(result.response_excerpt.length <= 1024);
  assert.ok(!JSON.stringify({ ...result, response_excerpt: '' }).includes('top-secret'));
  assert.equal(result.detail === '', result.outcome === 'ok');
}

interface Hostile {
  does: string;
  script: (socket: Socket) => void;
  outcome: Outcome;
  status_code: number | null;
  detail?: RegExp;
  /** The transport sees the fault at once, so the push ends before the deadline. */
  at_once?: boolean;
  /** The machine acts before it has read the request. */
  before_request?: boolean;
}

const HOSTILE: Hostile[] = [
  {
    does: 'accepts and says nothing',
    script: () => {},
    outcome: 'timeout',
    status_code: null,
    detail: new RegExp(`no answer within ${SHORT_DEADLINE_MS / 1000} s`),
  },
  {
    does: 'drips its status line',
    script: (socket) => drip(socket, OK, 60),
    outcome: 'timeout',
    status_code: null,
  },
  {
    does: 'drips its body',
    script: (socket) => {
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n');
      drip(socket, forever('x'));
    },
    outcome: 'ok',
    status_code: 200,
  },
  {
    does: 'sends headers and then nothing',
    script: (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n'),
    outcome: 'ok',
    status_code: 200,
  },
  {
    does: 'sends the headers of a failure and then nothing',
    script: (socket) => socket.write('HTTP/1.1 500 Oops\r\ncontent-length: 2\r\n\r\n'),
    outcome: 'bad_status',
    status_code: 500,
  },
  {
    does: 'stops in the middle of its headers',
    script: (socket) => socket.write('HTTP/1.1 200 OK\r\nx-a: b\r\nx-'),
    outcome: 'timeout',
    status_code: null,
  },
  {
    does: 'sends a body without end',
    script: (socket) => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      flood(socket, Buffer.alloc(65536, 'x'));
    },
    outcome: 'ok',
    status_code: 200,
    at_once: true,
  },
  {
    does: 'sends chunks without end',
    script: (socket) => {
      socket.write('HTTP/1.1 500 Oops\r\ntransfer-encoding: chunked\r\n\r\n');
      flood(socket, `1000\r\n${'x'.repeat(4096)}\r\n`.repeat(8));
    },
    outcome: 'bad_status',
    status_code: 500,
    at_once: true,
  },
  {
    does: 'sends 1 MB of headers',
    script: (socket) => socket.write(`HTTP/1.1 200 OK\r\nx-large: ${'x'.repeat(1 << 20)}\r\n\r\n`),
    outcome: 'broken_response',
    status_code: null,
    detail: /headers of the response were over 16 KiB/,
    at_once: true,
  },
  {
    does: 'sends 100,000 headers',
    script: (socket) => socket.write(`HTTP/1.1 200 OK\r\n${'a: b\r\n'.repeat(100_000)}\r\n`),
    outcome: 'broken_response',
    status_code: null,
    at_once: true,
  },
  {
    does: 'sends 103 without end',
    script: (socket) => flood(socket, 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'.repeat(1000)),
    outcome: 'broken_response',
    status_code: null,
    detail: /over 100 interim responses/,
    at_once: true,
  },
  {
    does: 'sends 100 without end',
    script: (socket) => flood(socket, 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(1000)),
    outcome: 'broken_response',
    status_code: null,
    at_once: true,
  },
  {
    does: 'drips 103 without end',
    script: (socket) => drip(socket, forever('HTTP/1.1 103 Early Hints\r\n\r\n')),
    outcome: 'timeout',
    status_code: null,
  },
  {
    does: 'answers 100 several times and then 200',
    script: (socket) => socket.write('HTTP/1.1 100 Continue\r\n\r\n'.repeat(3) + OK),
    outcome: 'ok',
    status_code: 200,
    at_once: true,
  },
  {
    does: 'answers 103, 100 and 102 apart and then 200',
    script: (socket) =>
      drip(socket, [
        'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n',
        'HTTP/1.1 100 Continue\r\n\r\n',
        'HTTP/1.1 102 Processing\r\n\r\n',
        OK,
      ]),
    outcome: 'ok',
    status_code: 200,
    at_once: true,
  },
  {
    does: 'answers 100, 103 and 100 in pieces of five bytes and then 200',
    script: (socket) =>
      drip(socket, `${CONTINUE}HTTP/1.1 103 Early Hints\r\n\r\n${CONTINUE}${OK}`.match(/.{1,5}/gs) as string[]),
    outcome: 'ok',
    status_code: 200,
    at_once: true,
  },
  {
    does: 'answers with less than a status line, which is no HTTP',
    script: (socket) => socket.write('HTTP/2 1'),
    outcome: 'broken_response',
    status_code: null,
    detail: /was not HTTP/,
    at_once: true,
  },
  {
    does: 'changes the protocol',
    script: (socket) =>
      socket.write(
        'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n\x81\x05hello',
      ),
    outcome: 'broken_response',
    status_code: null,
    at_once: true,
  },
  {
    does: 'answers 101 without naming a protocol',
    script: (socket) => socket.write(`HTTP/1.1 101 Switching Protocols\r\n\r\n${OK}`),
    outcome: 'broken_response',
    status_code: null,
    detail: /101/,
    at_once: true,
  },
  {
    does: 'answers with garbage',
    script: (socket) => socket.write(Buffer.from([0, 255, 254, 13, 10, 13, 10, 0, 1, 2, 3])),
    outcome: 'broken_response',
    status_code: null,
    detail: /was not HTTP/,
    at_once: true,
  },
  {
    does: 'is an SSH server',
    script: (socket) => socket.write('SSH-2.0-OpenSSH_9.6\r\n'),
    outcome: 'broken_response',
    status_code: null,
    at_once: true,
    before_request: true,
  },
  {
    does: 'resets as soon as it has accepted',
    script: (socket) => socket.resetAndDestroy(),
    outcome: 'broken_response',
    status_code: null,
    at_once: true,
    before_request: true,
  },
  {
    does: 'resets before its headers',
    script: (socket) => socket.resetAndDestroy(),
    outcome: 'broken_response',
    status_code: null,
    detail: /without a response/,
    at_once: true,
  },
  {
    does: 'closes without an answer',
    script: (socket) => socket.end(),
    outcome: 'broken_response',
    status_code: null,
    detail: /closed without a response/,
    at_once: true,
  },
  {
    does: 'resets in the middle of its headers',
    script: (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-', () => setImmediate(() => socket.resetAndDestroy())),
    outcome: 'broken_response',
    status_code: null,
    at_once: true,
  },
  {
    does: 'closes in the middle of its headers',
    script: (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-'),
    outcome: 'broken_response',
    status_code: null,
    detail: /in the middle of the response/,
    at_once: true,
  },
  {
    does: 'closes in the middle of its body',
    script: (socket) => socket.end('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort'),
    outcome: 'ok',
    status_code: 200,
    at_once: true,
  },
  {
    does: 'says both content-length and transfer-encoding',
    script: (socket) =>
      socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'),
    outcome: 'broken_response',
    status_code: null,
    at_once: true,
  },
  {
    does: 'says two lengths',
    script: (socket) => socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!'),
    outcome: 'broken_response',
    status_code: null,
    at_once: true,
  },
  {
    does: 'answers 999',
    script: (socket) => socket.write('HTTP/1.1 999 What\r\ncontent-length: 0\r\n\r\n'),
    outcome: 'bad_status',
    status_code: 999,
    at_once: true,
  },
  {
    does: 'speaks HTTP/2',
    script: (socket) => socket.write(Buffer.from('00000604000000000000040000ffff', 'hex')),
    outcome: 'broken_response',
    status_code: null,
    at_once: true,
    before_request: true,
  },
  {
    does: 'answers before it has seen the request, and closes',
    script: (socket) => socket.end('HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n'),
    outcome: 'bad_status',
    status_code: 503,
    at_once: true,
    before_request: true,
  },
];

describe('a machine that misbehaves', { concurrency: 4 }, () => {
  for (const { does, script, outcome, status_code, detail, at_once, before_request } of HOSTILE) {
    test(`one that ${does} ends as ${outcome}, in time and with nothing left open`, async (t) => {
      const receiver = before_request ? await machine(t, script) : await answering(t, script);
      // For a fault that the transport sees at once, the deadline is long. So the deadline cannot end the push in the 10
      // s of this test, and a machine that sends piece by piece has the time for it also on a busy computer.
      const deadline_ms = at_once ? 30_000 : SHORT_DEADLINE_MS;
      const transport = transportFor(t, { deadline_ms });
      const result = await inTime(transport.push(pushTo(receiver.url)), at_once ? 10_000 : deadline_ms);
      assert.deepEqual(outcomeOf(result), [outcome, status_code], result.detail);
      assertBounded(result);
      if (!at_once) assert.ok(result.duration_ms >= deadline_ms - 1, `took ${result.duration_ms} ms`);
      if (detail) assert.match(result.detail, detail);
      transport.forget('machine');
      await receiver.allClosed();
      assert.equal(receiver.sockets.length, 1);
      assert.deepEqual(transport.counts(), { pushes: 0, connections: 0, idle_connections: 0, instances: 0 });
    });
  }

  test('undici alone takes an unasked-for 100 for a breach: the control of the tests above', async (t) => {
    const { url } = await answering(t, (socket) => socket.write(`HTTP/1.1 100 Continue\r\n\r\n${OK}`));
    const client = new Client(new URL(url).origin, { allowH2: false });
    t.after(() => client.destroy());
    await assert.rejects(client.request({ path: '/', method: 'POST', body: 'x' }));
  });

  const UNBOUNDED: [string, string][] = [
    ['chunk extensions', `1;${'e'.repeat(9_000)}\r\na\r\n`],
    ['chunks of one byte', '1\r\na\r\n'],
    ['trailers', ''],
  ];
  for (const [what, repeated] of UNBOUNDED) {
    test(`of an answer in ${what} without an end only so much is taken as of one with a long body`, async (t) => {
      const head = 'HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\n';
      const receiver = await answering(t, (socket) => {
        socket.write(what === 'trailers' ? `${head}0\r\n` : head);
        flood(socket, (repeated || `x-trailer: ${'e'.repeat(9_000)}\r\n`).repeat(8));
      });
      const result = await inTime(transportFor(t).push(pushTo(receiver.url)), 2000);
      assert.deepEqual(outcomeOf(result), ['bad_status', 500], result.detail);
      assertBounded(result);
      await receiver.allClosed();
      // The bytes in the buffers of both sockets count here too.
      const taken = receiver.sockets[0]!.bytesWritten;
      assert.ok(taken < 20 << 20, `${taken} bytes`);
    });
  }

  test('the real deadline is 5 s, and a push is over by 5.1 s', async (t) => {
    const { url } = await machine(t, () => {});
    const result = await inTime(transportFor(t).push(pushTo(url)), 5000);
    assert.equal(result.outcome, 'timeout');
    assert.ok(result.duration_ms >= 4999, `took ${result.duration_ms} ms`);
  });

  test('one that never reads a large push ends as timeout, and the reason says so', async (t) => {
    const receiver = await machine(t, (socket) => socket.pause());
    const transport = transportFor(t, { deadline_ms: SHORT_DEADLINE_MS });
    // More than the buffers of both sockets take. Of more still, a busy machine would spend the deadline on the signature.
    const body = Buffer.alloc(16 * 1024 * 1024);
    const result = await inTime(transport.push(pushTo(receiver.url, { body })), SHORT_DEADLINE_MS);
    assert.deepEqual(outcomeOf(result), ['timeout', null]);
    assert.match(result.detail, /request not read/);
    assertBounded(result);
    assert.equal(transport.counts().pushes, 0);
  });

  test('an answer is never decompressed', async (t) => {
    const bomb = gzipSync(Buffer.alloc(16 * 1024 * 1024));
    assert.ok(bomb.length < RESPONSE_BYTES_MAX);
    const receiver = await httpMachine(t, (_request, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': bomb.length });
      response.end(bomb);
    });
    const result = await inTime(transportFor(t).push(pushTo(receiver.url)), 5000);
    assert.equal(result.outcome, 'ok');
    assertBounded(result);
    assert.ok(result.response_excerpt.startsWith('\x1f'));
  });

  for (const status_code of [300, 301, 302, 303, 307, 308]) {
    test(`a ${status_code} is a bad status and leads nowhere`, async (t) => {
      const elsewhere = await machine(t, () => {});
      const receiver = await answering(t, (socket) =>
        socket.write(`HTTP/1.1 ${status_code} Moved\r\nlocation: ${elsewhere.url}\r\ncontent-length: 0\r\n\r\n`),
      );
      const result = await transportFor(t).push(pushTo(receiver.url));
      assert.deepEqual(outcomeOf(result), ['bad_status', status_code]);
      assert.match(result.detail, /redirects are not followed/);
      assert.equal(elsewhere.sockets.length, 0);
    });
  }

  test('a second answer behind the first is never taken for the answer to the next push', async (t) => {
    const receiver = await answering(t, (socket, request) => {
      if (request === 1) socket.write(`${OK}HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n`);
      else socket.write(OK);
    });
    const transport = transportFor(t);
    for (let i = 0; i < 3; i++) assert.equal((await transport.push(pushTo(receiver.url))).outcome, 'ok');
    assert.equal(receiver.sockets.length, 2);
  });

  test('one slow machine does not delay a push to another', async (t) => {
    const slow = await machine(t, () => {});
    const quick = await answering(t, (socket) => socket.write(OK));
    const transport = transportFor(t);
    let ended = 0;
    const hanging = Array.from({ length: 50 }, async (_, i) => {
      const { outcome } = await transport.push(pushTo(slow.url, { instance_id: `slow-${i}` }));
      ended++;
      return outcome;
    });
    const result = await transport.push(pushTo(quick.url));
    assert.deepEqual([result.outcome, ended], ['ok', 0]);
    await transport.close();
    assert.deepEqual(new Set(await Promise.all(hanging)), new Set(['timeout']));
  });
});

describe('the verdict', { concurrency: true }, () => {
  const verdicts: [number, '200' | '2xx', Outcome][] = [
    [200, '200', 'ok'],
    [200, '2xx', 'ok'],
    [201, '200', 'not_200'],
    [202, '2xx', 'ok'],
    [204, '200', 'not_200'],
    [204, '2xx', 'ok'],
    [304, '2xx', 'bad_status'],
    [404, '200', 'bad_status'],
    [410, '200', 'gone'],
    [500, '200', 'bad_status'],
  ];
  for (const [status_code, success_statuses, outcome] of verdicts) {
    test(`of ${status_code} where ${success_statuses} counts as success is ${outcome}`, async (t) => {
      const receiver = await httpMachine(t, (_request, response) => response.writeHead(status_code).end());
      const result = await transportFor(t).push(pushTo(receiver.url, { success_statuses }));
      assert.deepEqual(outcomeOf(result), [outcome, status_code]);
      assert.equal(result.detail, outcome === 'ok' ? '' : result.detail || 'missing');
      assert.deepEqual(stagesOf(result.stages), [
        'connect ok',
        'request ok',
        `response ${outcome === 'ok' ? 'ok' : 'failed'}`,
      ]);
    });
  }

  test('is reached through a head of just under 16 KiB with a large body behind it', async (t) => {
    const head = `HTTP/1.1 200 OK\r\ncontent-length: 50000\r\nx-large: ${'x'.repeat(16_000)}\r\n\r\n`;
    const receiver = await answering(t, (socket) => socket.write(head + 'y'.repeat(50_000)));
    const transport = transportFor(t);
    for (let i = 0; i < 2; i++) assert.deepEqual(outcomeOf(await transport.push(pushTo(receiver.url))), ['ok', 200]);
    assert.equal(receiver.sockets.length, 1);
  });

  test('returns Retry-After as it was sent', async (t) => {
    const receiver = await httpMachine(t, (_request, response) =>
      response.writeHead(503, { 'retry-after': '1e99' }).end(),
    );
    assert.equal((await transportFor(t).push(pushTo(receiver.url))).retry_after, '1e99');
    const silent = await httpMachine(t, (_request, response) => response.writeHead(503).end());
    assert.equal((await transportFor(t).push(pushTo(silent.url))).retry_after, null);
  });

  test('returns at most 1,024 characters of the response, as well-formed text', async (t) => {
    const bodies: [Buffer, string][] = [
      [Buffer.from('no such agent'), 'no such agent'],
      [Buffer.from('é'.repeat(2000)), 'é'.repeat(1024)],
      [Buffer.from(`x${'😀'.repeat(1000)}`), `x${'😀'.repeat(511)}`],
      [Buffer.from([0x61, 0xff, 0x00, 0x62]), 'a\ufffd\ufffdb'],
      [Buffer.alloc(RESPONSE_BYTES_MAX, 'y'), 'y'.repeat(1024)],
    ];
    for (const [body, excerpt] of bodies) {
      const receiver = await httpMachine(t, (_request, response) => response.writeHead(500).end(body));
      const result = await transportFor(t).push(pushTo(receiver.url));
      assert.equal(result.response_excerpt, excerpt);
    }
  });
});

describe('what goes on the wire', { concurrency: true }, () => {
  test('is one POST over HTTP/1.1 with the headers given, the exact bytes and their length', async (t) => {
    const requests: string[] = [];
    const receiver = await machine(t, (socket) =>
      onRequests(socket, (request) => {
        requests.push(request);
        socket.write(OK);
      }),
    );
    const body = Buffer.from('{"message":{"n":12345678901234567890,"é":"\\u0000"}}');
    const url = `http://127.0.0.1:${receiver.port}/hook/a%20b?x=1&y=%2F#part`;
    await transportFor(t).push(
      pushTo(url, { body: new Uint8Array(body), headers: { 'webhook-id': 'd1', 'x-b': 'c' } }),
    );
    assert.deepEqual(requests, [
      `POST /hook/a%20b?x=1&y=%2F HTTP/1.1\r\nhost: 127.0.0.1:${receiver.port}\r\nconnection: keep-alive\r\n` +
        `webhook-id: d1\r\nx-b: c\r\ncontent-length: ${body.length}\r\n\r\n${body.toString('latin1')}`,
    ]);
  });

  test('never carries a header that would begin another one', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const transport = transportFor(t);
    const result = await inTime(
      transport.push(pushTo(receiver.url, { headers: { authorization: 'top-secret\r\nx: y' } })),
      5000,
    );
    assert.equal(result.outcome, 'unreachable');
    assertBounded(result);
    assert.equal((await transport.push(pushTo(receiver.url))).outcome, 'ok');
  });
});

describe('kept connections', { concurrency: true }, () => {
  test('one after the other, pushes share one; as many are made as there are pushes at a time', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const transport = transportFor(t);
    for (let i = 0; i < 5; i++) {
      const { stages } = await transport.push(pushTo(receiver.url));
      assert.deepEqual(stagesOf(stages), [...(i === 0 ? ['connect ok'] : []), 'request ok', 'response ok']);
    }
    assert.equal(receiver.sockets.length, 1);
    for (let round = 0; round < 3; round++) {
      await Promise.all(Array.from({ length: 4 }, () => transport.push(pushTo(receiver.url))));
    }
    assert.equal(receiver.sockets.length, 4);
    assert.deepEqual(transport.counts(), { pushes: 0, connections: 4, idle_connections: 4, instances: 1 });
  });

  test('belong to one instance alone, even where two have the same URL', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const transport = transportFor(t);
    await transport.push(pushTo(receiver.url, { instance_id: 'a' }));
    await transport.push(pushTo(receiver.url, { instance_id: 'b' }));
    await transport.push(pushTo(receiver.url, { instance_id: 'a' }));
    assert.equal(receiver.sockets.length, 2);
  });

  test('stay when only the path of the URL changes, and close when its origin does', async (t) => {
    const old = await answering(t, (socket) => socket.write(OK));
    const moved = await answering(t, (socket) => socket.write(OK));
    const transport = transportFor(t);
    await transport.push(pushTo(old.url));
    await transport.push(pushTo(`${old.url}/v2`));
    assert.equal(old.sockets.length, 1);
    await transport.push(pushTo(moved.url));
    await old.allClosed();
    assert.equal(transport.counts().connections, 1);
  });

  test('close when the instance is forgotten, those in use as soon as their push is over', async (t) => {
    const requested = Promise.withResolvers<Socket>();
    const receiver = await answering(t, (socket, request) =>
      request === 1 ? socket.write(OK) : requested.resolve(socket),
    );
    const transport = transportFor(t);
    await transport.push(pushTo(receiver.url));
    const pushed = transport.push(pushTo(receiver.url));
    const socket = await requested.promise;
    transport.forget('machine');
    socket.write(OK);
    assert.equal((await pushed).outcome, 'ok');
    await receiver.allClosed();
    assert.deepEqual(transport.counts(), { pushes: 0, connections: 0, idle_connections: 0, instances: 0 });
  });

  test('are limited in number over all instances: one that finds no room closes', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const transport = transportFor(t, { idle_connections_max: 2 });
    for (const instance_id of ['a', 'b', 'c']) await transport.push(pushTo(receiver.url, { instance_id }));
    await closed(receiver.sockets[2]!);
    assert.deepEqual(transport.counts(), { pushes: 0, connections: 2, idle_connections: 2, instances: 2 });
  });

  test('are used again where more instances get pushes in turn than there is room for', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const transport = transportFor(t, { idle_connections_max: 40 });
    const pushToAll = async (): Promise<number> => {
      const before = receiver.sockets.length;
      for (let i = 0; i < 100; i++) await transport.push(pushTo(receiver.url, { instance_id: `i${i}` }));
      return receiver.sockets.length - before;
    };
    assert.equal(await pushToAll(), 100);
    for (let round = 0; round < 3; round++) assert.ok((await pushToAll()) <= 70, 'at least 30 of 40 were used again');
    assert.ok(transport.counts().idle_connections <= 40);
  });

  test('an instance that comes when there is no room has one within eight pushes, and keeps it', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const transport = transportFor(t, { idle_connections_max: 4 });
    for (let i = 0; i < 4; i++) await transport.push(pushTo(receiver.url, { instance_id: `i${i}` }));
    for (let i = 0; i < 8; i++) await transport.push(pushTo(receiver.url, { instance_id: 'late' }));
    const opened = receiver.sockets.length;
    for (let i = 0; i < 8; i++) await transport.push(pushTo(receiver.url, { instance_id: 'late' }));
    assert.equal(receiver.sockets.length, opened);
    await closed(receiver.sockets[0]!);
    assert.equal(transport.counts().idle_connections, 4);
  });

  test('cost nothing once the machine has closed them', async (t) => {
    const receiver = await answering(t, (socket) => socket.end(OK));
    const transport = transportFor(t);
    assert.equal((await transport.push(pushTo(receiver.url))).outcome, 'ok');
    await receiver.allClosed();
    assert.equal((await transport.push(pushTo(receiver.url))).outcome, 'ok');
    assert.equal(receiver.sockets.length, 2);
  });

  for (const closes of ['end', 'resetAndDestroy'] as const) {
    test(`a push that meets one which the machine closes just then (${closes}) is sent again at once`, async (t) => {
      const receiver = await answering(t, (socket, request) => {
        if (request === 2) socket[closes]();
        else socket.write(OK);
      });
      const transport = transportFor(t);
      await transport.push(pushTo(receiver.url));
      const result = await transport.push(pushTo(receiver.url));
      assert.deepEqual(outcomeOf(result), ['ok', 200], result.detail);
      assert.deepEqual(stagesOf(result.stages), ['connect ok', 'request ok', 'response ok']);
      assert.equal(receiver.sockets.length, 2);
    });
  }

  test('a push is not sent again once a byte of the response arrived, nor on a connection of its own, nor twice', async (t) => {
    let requests = 0;
    const receiver = await answering(t, (socket, request, connection) => {
      requests = request;
      if (connection === 1 && request > 1) socket.end('H');
      else if (connection === 2) socket.end();
      else socket.write(OK);
    });
    const transport = transportFor(t);
    await transport.push(pushTo(receiver.url));
    assert.equal((await transport.push(pushTo(receiver.url))).outcome, 'broken_response');
    assert.equal(requests, 2);
    assert.equal((await transport.push(pushTo(receiver.url))).outcome, 'broken_response');
    assert.equal(requests, 3);
  });

  test('a push is not sent again when its connection is cut more than a second later: the machine has probably seen it', async (t) => {
    let ahead_ms = 0;
    const receiver = await answering(t, (socket, request) => {
      if (request === 1) return void socket.write(OK);
      ahead_ms = 1_001;
      socket.end();
    });
    const transport = transportFor(t, { now: () => performance.now() + ahead_ms });
    await transport.push(pushTo(receiver.url));
    const result = await transport.pushFor(pushTo(receiver.url), 60_000);
    assert.deepEqual([result?.outcome, result?.detail], ['broken_response', 'connection closed without a response']);
    assert.equal(receiver.sockets.length, 1);
  });

  test('sending again happens within the same deadline', async (t) => {
    const receiver = await answering(t, (socket, request) => {
      if (request === 1) socket.write(OK);
      else if (request === 2) setTimeout(() => socket.end(), SHORT_DEADLINE_MS / 4);
    });
    const transport = transportFor(t, { deadline_ms: SHORT_DEADLINE_MS });
    await transport.push(pushTo(receiver.url));
    const result = await inTime(transport.push(pushTo(receiver.url)), SHORT_DEADLINE_MS);
    assert.equal(result.outcome, 'timeout');
    assert.equal(receiver.sockets.length, 2);
    assertBounded(result);
  });

  test('a push that was given up while undici still held it is never sent', async (t) => {
    let requests = 0;
    const receiver = await answering(t, (socket, request) => {
      requests = request;
      socket.write(OK);
    });
    const transport = transportFor(t);
    await transport.push(pushTo(receiver.url));
    // The transport closes before the send: undici sends on an open connection one turn of the event loop later.
    const pushed = transport.push(pushTo(receiver.url));
    await transport.close();
    assert.equal((await pushed).outcome, 'timeout');
    await receiver.allClosed();
    assert.equal(requests, 1);
    assert.equal(receiver.sockets.length, 1);
  });

  for (const kind of ['kept', 'new']) {
    test(`a push whose deadline passes before it is written is never sent, on a ${kind} connection either`, async (t) => {
      let requests = 0;
      const receiver = await answering(t, (socket, request) => {
        requests += 1;
        if (request > 0) socket.write(OK);
      });
      let stopped_ms = 0;
      const transport = transportFor(t, { now: () => performance.now() + stopped_ms });
      if (kind === 'kept') await transport.push(pushTo(receiver.url));
      const sent_before = requests;
      const pushed = transport.push(pushTo(receiver.url));
      // The clock moves as in a pause of the whole process, in which no timer fires.
      stopped_ms = 60_000;
      const { outcome, duration_ms } = await pushed;
      assert.equal(outcome, 'timeout');
      assert.ok(duration_ms >= stopped_ms, 'it was not the timer that ended it');
      await receiver.allClosed();
      assert.equal(requests, sent_before);
      assert.equal(transport.counts().connections, 0);
    });
  }

  test('a push that was given up during the handshake is never sent, though the machine wakes up', async (t) => {
    const awake = Promise.withResolvers<Buffer>();
    const receiver = await machine(t, (socket) => {
      socket.pause();
      socket.on('data', awake.resolve);
    });
    const transport = transportFor(t, { deadline_ms: SHORT_DEADLINE_MS });
    await transport.push(pushTo(`https://127.0.0.1:${receiver.port}/`));
    receiver.sockets[0]!.resume();
    const hello = await awake.promise;
    assert.equal(hello[0], 0x16, 'only the first message of the handshake was sent');
    await receiver.allClosed();
    assert.equal(transport.counts().connections, 0);
  });

  test('a push that asks for a fresh connection has one to itself, sees every stage, and closes it', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const transport = transportFor(t);
    const url = `http://localhost:${receiver.port}/`;
    await transport.push(pushTo(url));
    for (let i = 0; i < 2; i++) {
      const { stages } = await transport.push(pushTo(url, { fresh_connection: true }));
      assert.deepEqual(stagesOf(stages), ['dns ok', 'connect ok', 'request ok', 'response ok']);
      for (const { duration_ms } of stages) assert.ok(duration_ms >= 0);
    }
    assert.equal(receiver.sockets.length, 3);
    await Promise.all(receiver.sockets.slice(1).map(closed));
    assert.equal(transport.counts().idle_connections, 1);
  });

  test('closing the transport ends what is in flight and takes nothing more', async (t) => {
    const receiver = await machine(t, () => {});
    const transport = transportFor(t);
    const pushed = transport.push(pushTo(receiver.url));
    await transport.close();
    assert.match((await pushed).detail, /before the service stopped/);
    assert.deepEqual(outcomeOf(await transport.push(pushTo(receiver.url))), ['unreachable', null]);
    assert.deepEqual(transport.counts(), { pushes: 0, connections: 0, idle_connections: 0, instances: 0 });
    await receiver.allClosed();
  });
});

describe('a connection that cannot be made', { concurrency: true }, () => {
  test('is refused where nothing listens', async (t) => {
    const port = await freePort();
    const result = await transportFor(t).push(pushTo(`http://127.0.0.1:${port}/`));
    assert.deepEqual(outcomeOf(result), ['connect_refused', null]);
    assert.equal(result.detail, `connection refused: port ${port}`);
    assert.deepEqual(stagesOf(result.stages), ['connect failed']);
  });

  const mayStop = process.platform === 'linux' ? false : 'a full accept queue drops connections only on Linux';
  test('times out where nobody takes it', { skip: mayStop }, async (t) => {
    const program = `
      const server = require('node:net').createServer();
      server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => process.send(server.address().port));
    `;
    const child = fork('/dev/null', { execArgv: ['--eval', program], stdio: 'ignore' });
    t.after(() => child.kill('SIGKILL'));
    const [port] = (await once(child, 'message')) as [number];
    child.kill('SIGSTOP');
    const fillers = Array.from({ length: 4 }, () => connect(port, '127.0.0.1'));
    t.after(() => fillers.forEach((socket) => socket.destroy()));
    await Promise.race(fillers.map((socket) => once(socket, 'connect')));

    const transport = transportFor(t, { deadline_ms: SHORT_DEADLINE_MS });
    const result = await inTime(transport.push(pushTo(`http://127.0.0.1:${port}/`)), SHORT_DEADLINE_MS);
    assert.deepEqual(outcomeOf(result), ['connect_timeout', null]);
    assertBounded(result);
    assert.equal(transport.counts().pushes, 0);
  });

  test('goes to the next address where the first refuses', async (t) => {
    const server = createHttpServer((_request, response) => response.end());
    // At 127.0.0.1, another program could have a port that the system gave for ::1.
    const port = await freePort();
    server.listen(port, '::1');
    await once(server, 'listening');
    t.after(() => server.closeAllConnections());
    t.after(() => server.close());
    const result = await transportFor(t).push(pushTo(`http://localhost:${port}/`));
    assert.deepEqual(outcomeOf(result), ['ok', 200], result.detail);
    assert.match(result.stages[1]!.detail, /^::1 port/);
  });
});

describe('a host name', { concurrency: true }, () => {
  test('is resolved once for each connection, and the push goes where it was resolved to', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const dns = await startScriptedDns(together(['127.0.0.1'], []));
    t.after(() => dns.close());
    const transport = transportFor(t, { name_servers: [dns.address] });
    for (let i = 0; i < 3; i++) {
      const result = await transport.push(pushTo(`http://machine.test:${receiver.port}/`));
      assert.deepEqual(outcomeOf(result), ['ok', 200], result.detail);
    }
    assert.equal(dns.asked, 2);
    assert.equal(receiver.sockets.length, 1);
  });

  test('that has one denied address among good ones is blocked, whichever comes first', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    for (const addresses of [
      ['127.0.0.1', '169.254.169.254'],
      ['169.254.169.254', '127.0.0.1'],
    ]) {
      const dns = await startScriptedDns(({ type }) => (type === 'A' ? addresses : []));
      t.after(() => dns.close());
      const url = `http://mixed.test:${receiver.port}/`;
      const result = await transportFor(t, { name_servers: [dns.address] }).push(pushTo(url));
      assert.deepEqual(outcomeOf(result), ['blocked', null]);
      assert.match(result.detail, /169\.254\.169\.254 is a link-local address.*CONVOKE_EGRESS_ALLOW=/);
      assert.equal(receiver.sockets.length, 0);
    }
  });

  test('is blocked under public when it resolves to this machine, and reaches it when the allow-list says so', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const dns = await startScriptedDns(({ type }) => (type === 'A' ? ['127.0.0.1'] : ['::ffff:7f00:1']));
    t.after(() => dns.close());
    const url = `http://inside.test:${receiver.port}/`;
    const name_servers = [dns.address];
    const blocked = await transportFor(t, { policy: policyOf('public'), name_servers }).push(pushTo(url));
    assert.deepEqual(outcomeOf(blocked), ['blocked', null]);
    assert.equal(receiver.sockets.length, 0);
    const allowed = transportFor(t, { policy: policyOf('public', '127.0.0.1/32'), name_servers });
    assert.equal((await allowed.push(pushTo(url))).outcome, 'ok');
  });

  test('whose addresses change after the first push is judged again when a connection is made', async (t) => {
    const receiver = await answering(t, (socket, request) => (request === 1 ? socket.end(OK) : socket.write(OK)));
    let moved = false;
    const dns = await startScriptedDns(({ type }) =>
      type === 'AAAA' ? [] : [moved ? '169.254.169.254' : '127.0.0.1'],
    );
    t.after(() => dns.close());
    const transport = transportFor(t, { name_servers: [dns.address] });
    const url = `http://rebind.test:${receiver.port}/`;
    assert.equal((await transport.push(pushTo(url))).outcome, 'ok');
    await receiver.allClosed();
    moved = true;
    assert.equal((await transport.push(pushTo(url))).outcome, 'blocked');
    assert.equal(receiver.sockets.length, 1);
  });

  test('whose name server is mute ends as dns_failed at the deadline and delays no other', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    const dns = await startScriptedDns(({ name, type }) => {
      if (name !== 'good.test') return 'mute';
      return type === 'A' ? ['127.0.0.1'] : [];
    });
    t.after(() => dns.close());
    const transport = transportFor(t, { deadline_ms: SHORT_DEADLINE_MS, name_servers: [dns.address] });
    const mute = Array.from({ length: 50 }, (_, i) =>
      inTime(transport.push(pushTo(`http://mute${i}.test/`, { instance_id: `mute-${i}` })), SHORT_DEADLINE_MS),
    );
    const good = await transport.push(pushTo(`http://good.test:${receiver.port}/`));
    assert.deepEqual(outcomeOf(good), ['ok', 200], good.detail);
    for (const result of await Promise.all(mute)) {
      assert.deepEqual(outcomeOf(result), ['dns_failed', null]);
      assert.deepEqual(stagesOf(result.stages), ['dns failed']);
      assertBounded(result);
    }
    assert.equal(transport.counts().pushes, 0);
  });

  test('that does not exist ends as dns_failed at once', async (t) => {
    const dns = await startScriptedDns(() => 'NXDOMAIN');
    t.after(() => dns.close());
    const result = await inTime(
      transportFor(t, { name_servers: [dns.address] }).push(pushTo('http://unknown.test/')),
      1000,
    );
    assert.deepEqual(outcomeOf(result), ['dns_failed', null]);
    assert.match(result.detail, /^host not found: unknown\.test$/);
    assertBounded(result);
  });

  test('a denied address in the URL itself is blocked without a socket', async (t) => {
    const receiver = await answering(t, (socket) => socket.write(OK));
    for (const fresh_connection of [false, true]) {
      const transport = transportFor(t, { policy: policyOf('lan') });
      const result = await transport.push(pushTo(receiver.url, { fresh_connection }));
      assert.deepEqual(outcomeOf(result), ['blocked', null]);
      assert.match(result.detail, /CONVOKE_EGRESS=local would allow it/);
    }
    assert.equal(receiver.sockets.length, 0);
  });
});

describe('TLS', { concurrency: true }, () => {
  const pem = (name: string) => readFileSync(new URL(`../fixtures/tls/${name}.pem`, import.meta.url), 'utf8');
  const extra_ca = [pem('ca')];

  async function tlsMachine(t: TestContext, certificate: string) {
    const names: unknown[] = [];
    const server = createTlsServer({ key: pem('key'), cert: pem(certificate) }, (socket: TLSSocket) => {
      socket.on('error', () => {});
      names.push(socket.servername);
      onRequests(socket, () => socket.write(OK));
    });
    const receiver = await listening(t, server, 'https');
    return { receiver, names, by_name: `https://localhost:${receiver.port}/` };
  }

  test('a certificate that is valid for the name is accepted, and the handshake names the host', async (t) => {
    const { receiver, names, by_name } = await tlsMachine(t, 'good');
    const transport = transportFor(t, { extra_ca });
    const result = await transport.push(pushTo(by_name));
    assert.deepEqual(outcomeOf(result), ['ok', 200], result.detail);
    assert.deepEqual(stagesOf(result.stages), ['dns ok', 'connect ok', 'tls ok', 'request ok', 'response ok']);
    assert.deepEqual(names, ['localhost']);
    assert.equal((await transport.push(pushTo(by_name))).outcome, 'ok');
    assert.equal(receiver.sockets.length, 1);
    const by_address = await transport.push(pushTo(receiver.url, { instance_id: 'by address' }));
    assert.deepEqual(outcomeOf(by_address), ['ok', 200], by_address.detail);
    assert.equal(names[1], false);
  });

  const bad: [string, RegExp][] = [
    ['expired', /^TLS failed: certificate expired$/],
    ['self_signed', /^TLS failed: certificate is self-signed$/],
    ['other_name', /^TLS failed: certificate is not for localhost$/],
  ];
  for (const [certificate, detail] of bad) {
    test(`a certificate that is ${certificate.replace('_', ' ')} ends as tls_failed, whatever the environment says`, async (t) => {
      const { receiver, by_name } = await tlsMachine(t, certificate);
      t.after(() => delete process.env.NODE_TLS_REJECT_UNAUTHORIZED);
      process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
      const result = await transportFor(t, { extra_ca }).push(pushTo(by_name));
      assert.deepEqual(outcomeOf(result), ['tls_failed', null]);
      assert.match(result.detail, detail);
      assert.equal(result.stages.at(-1)!.stage, 'tls');
      await receiver.allClosed();
    });
  }

  test('a certificate from an authority that is not trusted ends as tls_failed', async (t) => {
    const { by_name } = await tlsMachine(t, 'good');
    const result = await transportFor(t).push(pushTo(by_name));
    assert.deepEqual(outcomeOf(result), ['tls_failed', null]);
    assert.match(result.detail, /does not trust|chain is incomplete/);
  });

  test('a handshake that stalls ends as tls_failed at the deadline', async (t) => {
    const receiver = await machine(t, () => {});
    const transport = transportFor(t, { deadline_ms: SHORT_DEADLINE_MS });
    const result = await inTime(transport.push(pushTo(`https://127.0.0.1:${receiver.port}/`)), SHORT_DEADLINE_MS);
    assert.deepEqual(outcomeOf(result), ['tls_failed', null]);
    assertBounded(result);
    await receiver.allClosed();
    assert.equal(transport.counts().pushes, 0);
  });

  test('a machine that speaks plain HTTP, or hangs up, ends as tls_failed at once', async (t) => {
    const plain = await machine(t, (socket) =>
      socket.once('data', () => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')),
    );
    const spoken = await transportFor(t).push(pushTo(`https://127.0.0.1:${plain.port}/`));
    assert.deepEqual(outcomeOf(spoken), ['tls_failed', null]);
    assert.match(spoken.detail, /does not speak TLS/);
    const rude = await machine(t, (socket) => socket.once('data', () => socket.resetAndDestroy()));
    const hung_up = await transportFor(t).push(pushTo(`https://127.0.0.1:${rude.port}/`));
    assert.deepEqual(outcomeOf(hung_up), ['tls_failed', null]);
    await Promise.all([plain.allClosed(), rude.allClosed()]);
  });
});

test('an answer that had arrived counts, though this process was too busy to read it before the deadline', async (t) => {
  const deadline_ms = SHORT_DEADLINE_MS;
  const receiver = await answering(t, (socket) => {
    socket.write(OK);
    const busy_until_ms = performance.now() + deadline_ms * 1.5;
    while (performance.now() < busy_until_ms);
  });
  const result = await transportFor(t, { deadline_ms }).push(pushTo(receiver.url));
  assert.deepEqual(outcomeOf(result), ['ok', 200], result.detail);
  assert.ok(result.duration_ms > deadline_ms);
});

test('a body that is kept is text without its byte order mark, or lost with the reason', async (t) => {
  const text = '{"reply":"hé"}';
  const keptOf = async (body: Buffer): Promise<PushResult['kept_body']> => {
    const receiver = await httpMachine(t, (_, response) => response.end(body));
    return (await transportFor(t).push(pushTo(receiver.url, { keeps_body: true }))).kept_body;
  };
  for (const body of [text, `\ufeff${text}`]) assert.deepEqual(await keptOf(Buffer.from(body)), { text });
  const lost = { lost: 'the body of the response is not UTF-8: it is compressed, or has another charset' };
  for (const body of [Buffer.from(text, 'latin1'), gzipSync(text)]) assert.deepEqual(await keptOf(body), lost);
});

test('the streams of runtimes that arrive at a time have 32 MiB, and leave room for every other response', async (t) => {
  const held: ServerResponse[] = [];
  t.after(() => held.forEach((response) => response.end()));
  const receiver = await httpMachine(t, (request, response) => {
    const bytes = Number(request.headers['x-bytes']);
    response.write('x'.repeat(bytes));
    if (bytes < STREAM_BYTES_MAX) response.end();
    else held.push(response);
  });
  const transport = transportFor(t, { deadline_ms: WAIT_MS_MAX });
  const keptOf = async (bytes: number, body_bytes_max?: number): Promise<number | string | undefined> => {
    const headers = { 'x-bytes': String(bytes) };
    const { kept_body } = await transport.push(pushTo(receiver.url, { headers, keeps_body: true, body_bytes_max }));
    return kept_body !== undefined && 'lost' in kept_body ? kept_body.lost : kept_body?.text.length;
  };
  const stream = (bytes: number) => keptOf(bytes, STREAM_BYTES_MAX);
  // A stream that finds no room stops taking memory. So less than one read of a socket (64 KiB) stays free.
  const streams = Array.from({ length: 40 }, () => stream(STREAM_BYTES_MAX));
  const another_bytes = 2 * RESPONSE_BYTES_MAX;
  const lost = await until(
    'streams that fill their room',
    () => stream(another_bytes),
    (kept) => kept !== another_bytes,
  );
  assert.match(String(lost), /had no room/);
  assert.equal(await keptOf(RESPONSE_BYTES_MAX), RESPONSE_BYTES_MAX);
  for (const response of held) response.end();
  const kept = (await Promise.all(streams)).filter((each) => each === STREAM_BYTES_MAX);
  assert.ok(kept.length <= 32, String(kept.length));
  assert.equal(await stream(another_bytes), another_bytes);
});
