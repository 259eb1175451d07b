/**
 * Pulls of the SDK: what it sends, and what its caller can rely on. The tests use real HTTP. The pauses of the SDK are
 * recorded, and take no time.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeClient, ConvokeError, type PushInHand, type PullOptions } from '@convoke/sdk';
import { inTime, until } from '../support/wait.ts';

interface PullRequest {
  results: ({ delivery_id: string; attempt: number } & Record<string, unknown>)[];
  max: number;
  wait_s: number;
  pull_id: string;
}

/** A push as the service hands it out. */
function pushOf(delivery_id: string, { attempt = 1, left_ms = 60_000, meeting_id = `m-${delivery_id}` } = {}) {
  const seq = Number(delivery_id.replace(/\D/g, ''));
  return {
    delivery_id,
    attempt,
    headers: { 'webhook-id': delivery_id, 'convoke-seq': String(seq), 'convoke-attempt': String(attempt) },
    body: JSON.stringify({
      event: 'new_message',
      meeting_id,
      message: { content: delivery_id },
      target_agents: ['a'],
      timestamp: '',
    }),
    deadline_at: new Date(Date.now() + left_ms).toISOString(),
  };
}

/** Hands out the pushes of a test, and loses responses when a test asks for that. */
class ScriptedService {
  readonly requests: PullRequest[] = [];
  readonly #pushes: object[] = [];
  #waiting: { response: ServerResponse; max: number }[] = [];
  /** A firewall responds with a page to a request that has this text. */
  refused_text: string | null = null;
  refused_status = 403;
  /** How the next requests fail: with a status, with a connection that is cut after the request, or with this body. */
  readonly failures: (number | 'cut' | '<html>' | `{${string}`)[] = [];
  /** The Retry-After of failures with a status. */
  retry_after: string | null = null;
  readonly #server = createServer(async (request, response) => {
    const body = (await json(request)) as PullRequest;
    this.requests.push(body);
    if (this.refused_text !== null && JSON.stringify(body).includes(this.refused_text))
      return void response.writeHead(this.refused_status, { 'content-type': 'text/html' }).end('<h1>Forbidden</h1>');
    const failure = this.failures.shift();
    if (failure === 'cut') return void request.socket.destroy();
    if (typeof failure === 'string') return void response.end(failure);
    if (failure !== undefined) return sendProblem(response, failure, this.retry_after);
    response.on('close', () => (this.#waiting = this.#waiting.filter((each) => each.response !== response)));
    this.#waiting.push({ response, max: body.max });
    this.#handOut();
    if (body.wait_s === 0 && !response.writableEnded) this.#send(response, []);
  });

  static async start(): Promise<ScriptedService> {
    const service = new ScriptedService();
    await once(service.#server.listen(0, '127.0.0.1'), 'listening');
    return service;
  }

  close(): void {
    this.#server.close().closeAllConnections();
  }

  get client(): ConvokeClient {
    return new ConvokeClient({ base_url: `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}` });
  }

  get results() {
    return this.requests.flatMap(({ results }) => results);
  }

  /** Hands out a push; each delivery is of a meeting of its own, unless the test says otherwise. */
  push(delivery_id: string, { attempt = 1, left_ms = 60_000, meeting_id = `m-${delivery_id}` } = {}): void {
    this.hand(pushOf(delivery_id, { attempt, left_ms, meeting_id }));
  }

  hand(push: object): void {
    this.#pushes.push(push);
    this.#handOut();
  }

  /** Whether a request waits for pushes. */
  get is_asked(): boolean {
    return this.#waiting.length > 0;
  }

  /** Cuts the connections of the requests that wait. */
  cutWaiting(): void {
    for (const { response } of this.#waiting) response.destroy();
  }

  #handOut(): void {
    for (const { response, max } of this.#waiting) {
      if (max === 0 || this.#pushes.length === 0) continue;
      this.#send(response, this.#pushes.splice(0, max));
    }
  }

  #send(response: ServerResponse, pushes: object[]): void {
    this.#waiting = this.#waiting.filter((each) => each.response !== response);
    // Without a date in the response, the client uses the clock of this machine as that of the service.
    response.sendDate = false;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ pushes }));
  }
}

function sendProblem(response: ServerResponse, status: number, retry_after: string | null): void {
  const problem = { type: 'about:blank', title: 'T', status, detail: 'what to do', code: 'some_code' };
  if (retry_after !== null) response.setHeader('retry-after', retry_after);
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(problem));
}

/** Pulls until the test ends. The pushes are kept unless `answer` handles them. */
async function start(t: TestContext, options: PullOptions = {}, answer?: (push: PushInHand) => void) {
  const service = await ScriptedService.start();
  const ending = new AbortController();
  const pauses_ms: number[] = [];
  const sleep = async (ms: number) => void pauses_ms.push(ms);
  const pushes: PushInHand[] = [];
  const pull = async () => {
    for await (const push of service.client.pull('i', { signal: ending.signal, sleep, ...options })) {
      pushes.push(push);
      answer?.(push);
    }
  };
  const over = pull();
  over.catch(() => {});
  t.after(async () => {
    ending.abort();
    for (const push of pushes) push.respond({ status_code: 200 });
    await over.catch(() => {});
    service.close();
  });
  const asked = () =>
    until(
      'a request that waits',
      () => service.is_asked,
      (is) => is,
    );
  const taken = (count: number) =>
    until(
      `${count} pushes`,
      () => pushes.length,
      (length) => length === count,
    );
  const handedIn = (count: number) =>
    until(
      `${count} results`,
      () => service.results.length,
      (length) => length === count,
    );
  return { service, ending, over, pushes, pauses_ms, asked, taken, handedIn };
}

/** Lets everything that is due happen. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

const succeed = (push: PushInHand): void => push.respond({ status_code: 200 });

describe('pull', () => {
  test('hands out each push in order, and reports its result with the request for the next', async (t) => {
    const { service, pushes, asked, handedIn } = await start(t, {}, succeed);
    await asked();
    for (const id of ['d1', 'd2', 'd3']) service.push(id, { meeting_id: 'm' });
    await handedIn(3);
    assert.deepEqual(
      pushes.map(({ delivery_id, message, seq, meeting_id }) => ({ delivery_id, message, seq, meeting_id })),
      [1, 2, 3].map((seq) => ({ delivery_id: `d${seq}`, message: { content: `d${seq}` }, seq, meeting_id: 'm' })),
    );
    assert.deepEqual(
      service.requests.slice(1).map(({ results, max }) => ({ results, max })),
      [[], ...[1, 2, 3].map((seq) => [{ delivery_id: `d${seq}`, attempt: 1, status_code: 200 }])].map((results) => ({
        results,
        max: 1,
      })),
    );
  });

  test('hands out as many at a time as requested, and reports a result while a request waits', async (t) => {
    const { service, pushes, taken, handedIn } = await start(t, { concurrency: 3 });
    for (const id of ['d1', 'd2', 'd3', 'd4']) service.push(id);
    await taken(3);
    pushes[1]!.respond({ status_code: 200, body: '{}' });
    await taken(4);
    for (const push of [pushes[0]!, pushes[2]!]) push.respond({ not_reached: 'why' });
    await handedIn(3);
    assert(service.requests.every(({ max }) => max <= 3));
    pushes[3]!.respond({ status_code: 503, retry_after: '7' });
    await handedIn(4);
    assert.deepEqual(
      service.results.toSorted((a, b) => a.delivery_id.localeCompare(b.delivery_id)),
      [
        { delivery_id: 'd1', attempt: 1, not_reached: 'why' },
        { delivery_id: 'd2', attempt: 1, status_code: 200, body: '{}' },
        { delivery_id: 'd3', attempt: 1, not_reached: 'why' },
        { delivery_id: 'd4', attempt: 1, status_code: 503, retry_after: '7' },
      ],
    );
  });

  test('gives one push of a meeting at a time, although a response may have two: the next one, and one that went aside', async (t) => {
    const { service, pushes, taken, handedIn } = await start(t, { concurrency: 4 });
    for (const id of ['d1', 'd2', 'd3']) service.push(id, { meeting_id: 'm' });
    service.push('d4');
    await taken(2);
    const given = () => pushes.map(({ delivery_id }) => delivery_id);
    succeed(pushes[1]!);
    await handedIn(1);
    assert.deepEqual(given(), ['d1', 'd4']);
    succeed(pushes[0]!);
    await taken(3);
    await handedIn(2);
    assert.deepEqual(given(), ['d1', 'd4', 'd2']);
    succeed(pushes[2]!);
    await taken(4);
    assert.deepEqual(given(), ['d1', 'd4', 'd2', 'd3']);
  });

  test('after its deadline a push without a result holds up no other push of its meeting', async (t) => {
    const { service, pushes, taken } = await start(t, { concurrency: 3 });
    service.push('d1', { meeting_id: 'm', left_ms: 20 });
    for (const id of ['d2', 'd3']) service.push(id, { meeting_id: 'm' });
    await taken(2);
    assert.equal(pushes[0]!.signal.aborted, true);
    // The meeting still waits for d2, although d1 has its result now.
    succeed(pushes[0]!);
    service.push('d4');
    await taken(3);
    assert.equal(pushes[2]!.delivery_id, 'd4');
    succeed(pushes[1]!);
    await taken(4);
  });

  test('a push that is handed out again after its deadline holds up the others of its meeting again', async (t) => {
    const { service, pushes, taken, asked } = await start(t, { concurrency: 3 });
    service.push('d1', { meeting_id: 'm', left_ms: 20 });
    await taken(1);
    await until(
      'the deadline',
      () => pushes[0]!.signal.aborted,
      (is) => is,
    );
    await asked();
    service.push('d1', { meeting_id: 'm', attempt: 2 });
    await asked();
    for (const [id, meeting_id] of [
      ['d2', 'm'],
      ['d3', 'n'],
    ] as const)
      service.push(id, { meeting_id });
    await taken(2);
    assert.equal(pushes[1]!.delivery_id, 'd3');
    succeed(pushes[0]!);
    await taken(3);
  });

  test('a result whose request was lost is handed in again, after pauses that begin at 0.1 s', async (t) => {
    const { service, pauses_ms, asked, taken, pushes } = await start(t);
    service.push('d1');
    await taken(1);
    service.failures.push('cut', 503, 502, ...Array.from({ length: 9 }, () => 'cut' as const));
    pushes[0]!.respond({ status_code: 200 });
    await asked();
    const with_result = service.requests.filter(({ results }) => results.length === 1);
    assert.equal(with_result.length, 13, 'each request brings it until one gets a response');
    assert.equal(pauses_ms.length, 12);
    for (const [i, pause_ms] of pauses_ms.entries()) {
      const whole_ms = Math.min(100 * 2 ** i, 500);
      assert(pause_ms >= whole_ms / 2 && pause_ms <= whole_ms, `pause ${i}: ${pause_ms} ms`);
    }
  });

  test('after an outage its requests together ask for no more pushes than there is room for', async (t) => {
    const pausing = Promise.withResolvers<void>();
    const { service, pushes, asked, taken, handedIn } = await start(t, {
      concurrency: 4,
      sleep: () => pausing.promise,
    });
    t.after(() => pausing.resolve());
    service.push('d1');
    await taken(1);
    await asked();
    // The request that waits and the request with the result are both lost, and both are made again.
    service.failures.push('cut');
    succeed(pushes[0]!);
    await handedIn(1);
    service.cutWaiting();
    await until(
      'the loss',
      () => service.is_asked,
      (is) => !is,
    );
    const lost = service.requests.slice(-2);
    const before = service.requests.length;
    pausing.resolve();
    const again = await until(
      'both requests',
      () => lost.map(({ pull_id }) => service.requests.slice(before).find((each) => each.pull_id === pull_id)),
      (requests) => requests.every((each) => each !== undefined),
    );
    assert.equal(
      again.reduce((sum, request) => sum + request!.max, 0),
      4,
    );
  });

  test('a request that did not arrive in time (408) is made again, with its results', async (t) => {
    const { service, asked, taken, pushes } = await start(t);
    service.push('d1');
    await taken(1);
    service.failures.push(408);
    pushes[0]!.respond({ status_code: 200 });
    await asked();
    assert.equal(service.requests.filter(({ results }) => results.length === 1).length, 2);
  });

  for (const body of ['<html>', '{}', '{"pushes":[null]}', '{"pushes":[{"delivery_id":"d2"}]}'] as const)
    test(`a network that responds ${body} in place of the service does not end it`, async (t) => {
      const { service, asked, taken, pushes } = await start(t);
      service.push('d1');
      await taken(1);
      service.failures.push(body);
      pushes[0]!.respond({ status_code: 200 });
      await asked();
      assert.equal(service.requests.filter(({ results }) => results.length === 1).length, 2);
    });

  test('a result whose text a firewall refuses holds up neither pushes nor other results, and arrives without its text', async (t) => {
    const why: string[] = [];
    const onConnection = (_: string, error: ConvokeError | null): void => void (error && why.push(error.detail));
    const { service, pushes, taken, pauses_ms } = await start(t, { concurrency: 3, onConnection });
    service.refused_text = '<script>';
    for (const id of ['d1', 'd2']) service.push(id);
    await taken(2);
    pushes[0]!.respond({ status_code: 200, body: '{"reply":"<script>"}' });
    pushes[1]!.respond({ status_code: 200, body: '{"reply":"yes"}' });
    service.push('d3');
    await taken(3);
    const given = () => service.results.filter((result) => !JSON.stringify(result).includes('<script>'));
    const without_text = await until(
      'the result without its text',
      () => given().find(({ delivery_id }) => delivery_id === 'd1'),
      (result) => result !== undefined,
    );
    assert.deepEqual(without_text, {
      delivery_id: 'd1',
      attempt: 1,
      status_code: 200,
      body: 'the text of this result was left out: something between this machine and Convoke refuses it',
    });
    assert(given().some(({ delivery_id, body }) => delivery_id === 'd2' && body === '{"reply":"yes"}'));
    assert(why.some((detail) => detail.includes('responded 403') && detail.includes('refuses the result of d1')));
    assert(pauses_ms.length >= 5 && pauses_ms.length < 20, `${pauses_ms.length} pauses`);
    // Later results go as before, and with their text.
    pushes[2]!.respond({ status_code: 200, body: '{"reply":"no"}' });
    await until(
      'the result of d3',
      () => given().find(({ delivery_id, body }) => delivery_id === 'd3' && body === '{"reply":"no"}'),
      (result) => result !== undefined,
    );
  });

  test('a proxy that has no room for a while costs no result its text', async (t) => {
    const { service, pushes, taken, pauses_ms } = await start(t);
    service.push('d1');
    await taken(1);
    service.refused_text = 'yes';
    service.refused_status = 503;
    pushes[0]!.respond({ status_code: 200, body: '{"reply":"yes"}' });
    await until(
      'many tries',
      () => service.results.length,
      (length) => length >= 9,
    );
    service.refused_text = null;
    const tries = service.results.length;
    await until(
      'the result',
      () => service.results.length,
      (length) => length > tries,
    );
    assert(service.results.every(({ body }) => body === '{"reply":"yes"}'));
    assert(pauses_ms.at(-1)! >= 2_500, 'the pauses grow');
  });

  test('a service that was away for some seconds has its results within half a second of its return', async (t) => {
    const away_ms = 7_000;
    let now_ms = 0;
    const sleep = async (ms: number): Promise<void> => {
      now_ms += ms;
      if (now_ms < away_ms) service.failures.push('cut');
    };
    const { service, asked, taken, pushes } = await start(t, { sleep, now: () => now_ms });
    service.push('d1');
    await taken(1);
    service.failures.push('cut');
    pushes[0]!.respond({ status_code: 200 });
    await until(
      'the return',
      () => now_ms,
      (ms) => ms >= away_ms,
    );
    assert(now_ms <= away_ms + 500, `${now_ms - away_ms} ms late`);
    await asked();
    assert.deepEqual(service.results.at(-1), { delivery_id: 'd1', attempt: 1, status_code: 200 });
  });

  test('says once that the service is lost, and that it is back', async (t) => {
    const states: string[] = [];
    const { service, handedIn } = await start(t, { onConnection: (state) => states.push(state) }, succeed);
    service.push('d1');
    await handedIn(1);
    service.failures.push('cut', 'cut');
    service.push('d2');
    await until(
      'the connection',
      () => states.length,
      (length) => length === 3,
    );
    assert.deepEqual(states, ['connected', 'reconnecting', 'connected']);
  });

  test('a push that is handed out again while it is handled is handled once, and its result is of the latest attempt', async (t) => {
    const { service, pushes, taken, handedIn } = await start(t, { concurrency: 2 });
    service.push('d1');
    await taken(1);
    service.push('d1', { attempt: 2 });
    service.push('d2');
    await taken(2);
    pushes[0]!.respond({ status_code: 200 });
    await handedIn(1);
    assert.deepEqual(service.results, [{ delivery_id: 'd1', attempt: 2, status_code: 200 }]);
  });

  test('a success is handed in again without a second call; a failure is called again', async (t) => {
    const { service, pushes, handedIn, taken } = await start(t, {}, (push) =>
      push.respond({ status_code: push.delivery_id === 'd1' ? 200 : 500 }),
    );
    service.push('d1');
    service.push('d2');
    await handedIn(2);
    service.push('d1', { attempt: 2 });
    service.push('d2', { attempt: 2 });
    await handedIn(4);
    await taken(3);
    assert.deepEqual(
      pushes.map(({ delivery_id, attempt }) => `${delivery_id} ${attempt}`),
      ['d1 1', 'd2 1', 'd2 2'],
    );
    assert.deepEqual(service.results[2], { delivery_id: 'd1', attempt: 2, status_code: 200 });
  });

  test('a push that is none is refused alone, as a webhook refuses it: other pushes and results go on', async (t) => {
    const { service, pushes, handedIn } = await start(t, { concurrency: 4 }, succeed);
    service.hand({ ...pushOf('d1'), body: '{"event":"old_message"}' });
    service.hand({ ...pushOf('d2'), body: 'no JSON' });
    service.hand({ ...pushOf('d3'), headers: {} });
    service.push('d4');
    await handedIn(4);
    assert.deepEqual(
      pushes.map(({ delivery_id }) => delivery_id),
      ['d4'],
    );
    assert.deepEqual(
      service.results.map(({ delivery_id, status_code }) => [delivery_id, status_code]),
      [
        ['d1', 400],
        ['d2', 400],
        ['d3', 401],
        ['d4', 200],
      ],
    );
    service.push('d5');
    await handedIn(5);
  });

  test('a clock that is a month behind, without a date in the response, leaves a push its time', async (t) => {
    const { service, pushes, taken, asked } = await start(t, { concurrency: 2 });
    service.push('d1', { left_ms: 30 * 86_400_000 });
    await taken(1);
    await asked();
    service.push('d2', { left_ms: 20 });
    await taken(2);
    await until(
      'a later deadline',
      () => pushes[1]!.signal.aborted,
      (is) => is,
    );
    assert.equal(pushes[0]!.signal.aborted, false);
  });

  test('a result that is none throws where it is given, and the right one can be given then', async (t) => {
    const { service, pushes, taken, handedIn } = await start(t);
    service.push('d1');
    await taken(1);
    assert.throws(() => pushes[0]!.respond({ not_reached: undefined as unknown as string }), TypeError);
    succeed(pushes[0]!);
    await handedIn(1);
  });

  test('what onConnection throws ends it, also when the service is lost', async (t) => {
    const onConnection = (state: string) => {
      if (state === 'reconnecting') throw new Error('of the caller');
    };
    const { service, over, asked } = await start(t, { concurrency: 2, onConnection });
    await asked();
    service.cutWaiting();
    await assert.rejects(inTime('the end', over), /of the caller/);
  });

  test('only the first result of a push counts: a success after a failure is not that of the next attempt', async (t) => {
    const { service, pushes, handedIn } = await start(t, {}, (push) => {
      push.respond({ status_code: 500 });
      push.respond({ status_code: 200 });
    });
    service.push('d1');
    await handedIn(1);
    service.push('d1', { attempt: 2 });
    await handedIn(2);
    assert.equal(pushes.length, 2);
    assert.deepEqual(
      service.results.map(({ attempt, status_code }) => [attempt, status_code]),
      [
        [1, 500],
        [2, 500],
      ],
    );
  });

  test('a success is not forgotten while the machine sleeps for hours', async (t) => {
    t.mock.timers.enable({ apis: ['Date'], now: Date.now() });
    const { service, pushes, asked, handedIn } = await start(t, {}, succeed);
    service.push('d1');
    await handedIn(1);
    await asked();
    t.mock.timers.setTime(Date.now() + 8 * 3_600_000);
    service.push('d1', { attempt: 2 });
    await until(
      'the second result',
      () => service.results.at(-1)?.attempt,
      (attempt) => attempt === 2,
    );
    assert.equal(pushes.length, 1);
  });

  test('at the deadline its signal is aborted, its room is free, and a late result is not handed in', async (t) => {
    const { service, pushes, taken, handedIn } = await start(t);
    service.push('d1', { left_ms: 20 });
    service.push('d2');
    await taken(2);
    assert.equal(pushes[0]!.signal.aborted, true);
    assert.equal(pushes[1]!.signal.aborted, false);
    pushes[0]!.respond({ status_code: 200 });
    succeed(pushes[1]!);
    await handedIn(1);
    assert.deepEqual(service.results, [{ delivery_id: 'd2', attempt: 1, status_code: 200 }]);
    service.push('d1', { attempt: 2 });
    await handedIn(2);
    assert.equal(pushes.length, 2, 'the late success was remembered');
  });

  test('a request whose response was lost keeps its name when it is made again, and no other request has it', async (t) => {
    const { service, pushes, asked, taken, handedIn } = await start(t, { concurrency: 2 });
    service.failures.push('cut', 503);
    await asked();
    const names = () => service.requests.map(({ pull_id }) => pull_id);
    const [first, second, third] = names();
    assert.deepEqual([second, third], [first, first]);
    service.push('d1');
    await taken(1);
    await asked();
    // The request that reports results has another name, and also keeps it when it is repeated.
    service.failures.push('cut');
    succeed(pushes[0]!);
    await handedIn(2);
    const [lost, again] = service.requests.filter(({ results }) => results.length > 0);
    const waited = service.requests.find(({ results, wait_s }) => results.length === 0 && wait_s > 0);
    assert.notEqual(lost?.pull_id, waited?.pull_id);
    await until(
      'the lost request under its name',
      () => names().filter((name) => name === lost?.pull_id).length,
      (count) => count >= 2,
    );
    assert.ok(again !== undefined);
    assert.match(first!, /^[0-9a-f]{32}$/);
  });

  test('when its signal is aborted it ends after the push in hand, with the result handed in', async (t) => {
    const { service, ending, over, pushes, taken } = await start(t, { concurrency: 2 });
    service.push('d1');
    await taken(1);
    ending.abort();
    let is_over = false;
    void over.then(() => (is_over = true));
    await until(
      'the end of the request that waited',
      () => service.is_asked,
      (is) => !is,
    );
    assert.equal(is_over, false);
    // A restart of the service in between does not lose it.
    service.failures.push('cut', 503);
    succeed(pushes[0]!);
    await over;
    const { pull_id: _, ...last } = service.requests.at(-1)!;
    assert.deepEqual(last, { results: [{ delivery_id: 'd1', attempt: 1, status_code: 200 }], max: 0, wait_s: 0 });
  });

  for (const [what, failure, retry_after] of [
    ['is too busy', 503, null],
    ['asks for a pause of a minute', 503, '60'],
    ['is away', 'cut', null],
  ] as const) {
    test(`ends within 10 s and after a few requests when the service ${what} and a result is in hand`, async (t) => {
      let now_ms = 0;
      const sleep = async (ms: number): Promise<void> => void (now_ms += ms);
      const { service, ending, over, pushes, taken } = await start(t, { sleep, now: () => now_ms });
      service.push('d1');
      await taken(1);
      const before = service.requests.length;
      // More failures than there is time for.
      service.failures.push(...Array.from({ length: 200 }, () => failure));
      service.retry_after = retry_after;
      ending.abort();
      succeed(pushes[0]!);
      await inTime('the end', over);
      assert(now_ms <= 10_000, `${now_ms} ms`);
      const tries = service.requests.length - before;
      assert(tries >= 2 && tries <= 40, `${tries} requests`);
    });
  }

  test('ends within 10 s when the service is away and the clock of the machine is set back by a day', async (t) => {
    let steady_ms = 0;
    let wall_ms = Date.now();
    t.mock.method(performance, 'now', () => steady_ms);
    t.mock.method(Date, 'now', () => wall_ms);
    const sleep = async (ms: number): Promise<void> => {
      steady_ms += ms;
      wall_ms -= 86_400_000;
    };
    const { service, ending, over, pushes, taken } = await start(t, { sleep });
    service.push('d1');
    await taken(1);
    service.failures.push(...Array.from({ length: 200 }, () => 'cut' as const));
    ending.abort();
    succeed(pushes[0]!);
    await inTime('the end', over);
    assert(steady_ms <= 10_000 && service.failures.length > 150, `${steady_ms} ms`);
  });

  describe('a stop while a push may be on its way', () => {
    /** Stops while a request waits; returns the requests after that, and the name of the request that waited. */
    async function stopWaiting(t: TestContext, failures: (number | 'cut')[]) {
      const { service, ending, over, pauses_ms, asked } = await start(t);
      await asked();
      const before = service.requests.length;
      const { pull_id } = service.requests.at(-1)!;
      service.failures.push(...failures);
      ending.abort();
      await inTime('the end', over);
      return { requests: service.requests.slice(before), pull_id, pauses_ms };
    }

    test('lets the service take the push back at once', async (t) => {
      const { requests, pull_id } = await stopWaiting(t, []);
      assert.deepEqual(requests, [{ results: [], max: 0, wait_s: 0, pull_id }]);
    });

    test('tries that again while the service is too busy', async (t) => {
      const { requests, pull_id } = await stopWaiting(t, [503]);
      const request = { results: [], max: 0, wait_s: 0, pull_id };
      assert.deepEqual(requests, [request, request]);
    });

    for (const [what, failure] of [
      ['is away', 'cut'],
      ['refuses it for good', 404],
    ] as const) {
      test(`ends at once and without an error when the service ${what}`, async (t) => {
        const { requests, pauses_ms } = await stopWaiting(t, [failure]);
        assert.equal(requests.length, 1);
        assert.deepEqual(pauses_ms, []);
      });
    }

    test('does that in the request that hands in the last result', async (t) => {
      const { service, ending, over, pushes, asked, taken } = await start(t, { concurrency: 2 });
      service.push('d1');
      await taken(1);
      await asked();
      const before = service.requests.length;
      const { pull_id } = service.requests.at(-1)!;
      ending.abort();
      succeed(pushes[0]!);
      await inTime('the end', over);
      const results = [{ delivery_id: 'd1', attempt: 1, status_code: 200 }];
      assert.deepEqual(service.requests.slice(before), [{ results, max: 0, wait_s: 0, pull_id }]);
    });
  });

  test('at the end no pause that began before keeps back the last result', async (t) => {
    // Each pause lasts until it is cut, or until the test is over.
    let pauses = 0;
    const is_over = Promise.withResolvers<void>();
    t.after(() => is_over.resolve());
    const sleep = (_: number, signal: AbortSignal | undefined): Promise<void> => {
      pauses++;
      const cut = new Promise<void>((resolve) => signal?.addEventListener('abort', () => resolve()));
      return Promise.race([cut, is_over.promise]);
    };
    const { service, ending, over, pushes, taken } = await start(t, { concurrency: 2, sleep });
    service.push('d1');
    service.push('d2');
    await taken(2);
    service.failures.push(503);
    service.retry_after = '60';
    ending.abort();
    succeed(pushes[0]!);
    await until(
      'a pause',
      () => pauses,
      (count) => count === 1,
    );
    succeed(pushes[1]!);
    await inTime('the end', over);
    assert.deepEqual(
      service.requests.at(-1)!.results.map(({ delivery_id }) => delivery_id),
      ['d1', 'd2'],
    );
  });

  describe('a loop that ends early', () => {
    /** Takes one push of three that arrive together, and leaves the loop. */
    async function leave(t: TestContext, answer: (push: PushInHand) => void) {
      const service = await ScriptedService.start();
      t.after(() => service.close());
      for (const id of ['d1', 'd2', 'd3']) service.push(id);
      for await (const push of service.client.pull('i', { concurrency: 3 })) {
        answer(push);
        break;
      }
      return service;
    }

    test('reports what was handled, and lets the service take back at once what nobody saw', async (t) => {
      const { results, requests } = await leave(t, succeed);
      assert.deepEqual(results, [{ delivery_id: 'd1', attempt: 1, status_code: 200 }]);
      const { pull_id } = requests[0]!;
      assert.deepEqual(requests.at(-1), { results: [], max: 0, wait_s: 0, pull_id });
    });

    test('lets the service not take back a push that was seen and has no result', async (t) => {
      const { results, requests } = await leave(t, () => {});
      const [first, ...later] = requests;
      assert(later.every(({ pull_id }) => pull_id !== first!.pull_id));
      assert.deepEqual(
        results,
        ['d2', 'd3'].map((delivery_id) => ({
          delivery_id,
          attempt: 1,
          not_reached: 'the program that pulls has ended',
        })),
      );
    });
  });

  test('a stop gives back what nobody saw only after the results of what came with it', async (t) => {
    const { service, ending, over, pushes, taken } = await start(t, { concurrency: 3 });
    for (const id of ['d1', 'd2']) service.push(id, { meeting_id: 'm' });
    await taken(1);
    ending.abort();
    succeed(pushes[0]!);
    await inTime('the end', over);
    const brought = service.requests[0]!;
    const given_back = service.requests.findIndex(({ pull_id, max }) => max === 0 && pull_id === brought.pull_id);
    const reported = service.requests.findIndex(({ results }) => results.length > 0);
    assert.deepEqual(
      service.results.map(({ delivery_id }) => delivery_id),
      ['d1'],
    );
    assert(reported >= 0 && reported < given_back, `${reported} ${given_back}`);
  });

  test('a refusal ends it with the code', async (t) => {
    const { service, over, asked } = await start(t, { concurrency: 2 });
    await asked();
    service.failures.push(404);
    service.push('d1');
    await assert.rejects(over, (error) => error instanceof ConvokeError && error.code === 'some_code');
  });

  test('after a refusal nobody gets a push that waited: its result could not be handed in', async (t) => {
    const service = await ScriptedService.start();
    t.after(() => service.close());
    for (const id of ['d1', 'd2']) service.push(id);
    let ending: AbortSignal | undefined;
    const ready = (signal: AbortSignal): undefined => void (ending = signal);
    const pulling = service.client.pull('i', { concurrency: 2, ready });
    const first = await pulling.next();
    service.failures.push(404);
    succeed(first.value!);
    await until(
      'the refusal',
      () => ending?.aborted,
      (is) => is === true,
    );
    await assert.rejects(pulling.next(), ConvokeError);
  });

  test('a refusal aborts the signals of the pushes in hand', async (t) => {
    const { service, over, pushes, asked, taken } = await start(t, { concurrency: 3 });
    service.push('d1');
    await taken(1);
    await asked();
    service.failures.push(404);
    service.push('d2');
    await assert.rejects(over, ConvokeError);
    assert.deepEqual(
      pushes.map(({ signal }) => signal.aborted),
      [true, true],
    );
  });

  test('asks for nothing while it is not ready, and still reports results', async (t) => {
    let is_open = true;
    let open = (): void => {};
    const ready = () => (is_open ? undefined : new Promise<void>((resolve) => (open = resolve)));
    const { service, pushes, asked, taken, handedIn } = await start(t, { concurrency: 2, ready });
    service.push('d1');
    await taken(1);
    await asked();
    is_open = false;
    service.push('d2');
    await taken(2);
    for (const push of pushes) succeed(push);
    await handedIn(2);
    assert.equal(service.is_asked, false);
    assert.equal(service.requests.at(-1)!.max, 0);
    open();
    await asked();
  });

  test('a push that was not reached ends the request that waits: nothing more is taken until it is ready', async (t) => {
    let is_open = true;
    let open = (): void => {};
    const ready = () => (is_open ? undefined : new Promise<void>((resolve) => (open = resolve)));
    const states: string[] = [];
    const { service, pushes, asked, taken, handedIn } = await start(t, {
      concurrency: 2,
      ready,
      onConnection: (state) => states.push(state),
    });
    service.push('d1');
    await taken(1);
    await asked();
    const waited = service.requests.at(-1);
    is_open = false;
    pushes[0]!.respond({ not_reached: 'nothing listens' });
    await handedIn(1);
    await until(
      'that nothing is asked for',
      () => service.is_asked,
      (is) => !is,
    );
    assert.equal(service.requests.at(-1)!.max, 0);
    // A push may have been on its way to the request that waited. Under its name the service takes the push back.
    await until(
      'the name of the request that waited',
      () => service.requests.find(({ pull_id, max }) => pull_id === waited?.pull_id && max === 0),
      (request) => request !== undefined,
    );
    open();
    await asked();
    assert.notEqual(service.requests.at(-1)!.pull_id, waited?.pull_id, 'the next request is another');
    assert.deepEqual(states, ['connected'], 'the service was not lost');
  });

  test('a status that the service would refuse is handed in as 502 and named, and the pull goes on', async (t) => {
    const statuses = [0, 101, 600, 200.5, NaN];
    const { service, pushes, handedIn } = await start(t, {}, (push) =>
      push.respond({ status_code: statuses[pushes.length - 1]! }),
    );
    for (const at of statuses.keys()) service.push(`d${at}`);
    await handedIn(statuses.length);
    assert.deepEqual(
      service.results,
      statuses.map((status, at) => ({
        delivery_id: `d${at}`,
        attempt: 1,
        status_code: 502,
        body: `the status ${status} is none of 200 to 599`,
      })),
    );
  });

  test('a slow link gets its pushes and hands in its results: neither has to be whole after 5 s', async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'] });
    const requests: { signal: AbortSignal; answer: (response: Response) => void }[] = [];
    const fetch_ = (_: unknown, { signal }: RequestInit = {}) =>
      new Promise<Response>((answer) => requests.push({ signal: signal!, answer }));
    const client = new ConvokeClient({ base_url: 'http://127.0.0.1:1', fetch: fetch_ });
    const pulling = client.pull('i');
    const first = pulling.next();
    const slowly = new TransformStream<Uint8Array, Uint8Array>();
    requests[0]!.answer(new Response(slowly.readable));
    await turn();
    t.mock.timers.tick(30_000);
    assert.equal(requests[0]!.signal.aborted, false, 'the pushes are on their way');
    const writer = slowly.writable.getWriter();
    void writer.write(new TextEncoder().encode(JSON.stringify({ pushes: [pushOf('d1')] })));
    void writer.close();
    const push = (await first).value!;
    push.respond({ status_code: 200, body: 'x'.repeat(60_000) });
    const second = pulling.next();
    second.catch(() => {});
    await until(
      'the request with the result',
      () => requests.length,
      (length) => length === 2,
    );
    // This request may wait for 55 s too.
    t.mock.timers.tick(55_000 + 15_000);
    assert.equal(requests[1]!.signal.aborted, false, 'the result is on its way');
    t.mock.timers.tick(30_000);
    assert.equal(requests[1]!.signal.aborted, true, 'a dead connection is noticed');
  });

  test('a body that is too long for a result is cut between two characters', async (t) => {
    const { service, handedIn } = await start(t, {}, (push) =>
      push.respond({ status_code: 500, body: `x${'ü'.repeat(40_000)}` }),
    );
    service.push('d1');
    await handedIn(1);
    assert.equal(service.results[0]!['body'], `x${'ü'.repeat(32_767)}`);
  });
});
