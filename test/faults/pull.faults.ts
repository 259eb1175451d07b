/**
 * Machines that pull, with two processes for each instance. They die with pushes in hand, and results are lost on the
 * way. Meanwhile the test kills the service: first a single node; then one of two nodes, to which the other node
 * forwards pulls.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { json as readJson } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { makeDatabase } from '../support/postgres.ts';
import { until } from '../support/wait.ts';
import { type Answered, ask, deliveriesByState, nothingPending, send } from './api.ts';
import { balanced } from './cluster.ts';
import { NodeProcess } from './node_process.ts';
import { brokenPromises, PullingProcess, type PullRecord } from './pulling_machine.ts';
import { numberFrom, seededRandom, temporaryDirectory } from './run.ts';
import type { Protection } from './without.ts';

const KILLS = numberFrom('FAULTS_PULL_KILLS', 10);
const LOAD_MS_MAX = 1_500;
/** How many messages a process accepts at least before it is killed. */
const ACCEPTED_MIN = 4;
/**
 * How long after a result was counted it may be written. On a busy machine that takes longer: as long as the node has
 * not accepted `SENDS_MEANWHILE` later sends, one after the other, each with its own commit.
 */
const IN_FLIGHT_MS = 1_000;
const SENDS_MEANWHILE = 10;
const MEMBERS = new Map([
  ['alpha', ['one', 'two', 'three', 'four']],
  ['beta', ['one', 'three']],
  ['gamma', ['two', 'four']],
]);
/** With these settings the service notices lost results soon, and retries soon. */
const SETTINGS = { CONVOKE_RETRY_SCHEDULE: '50ms,50ms,50ms,50ms,50ms,50ms,50ms,50ms,50ms,50ms,50ms,50ms' };
const ACK_TIMEOUT_S = 1;

function serve(t: TestContext, data: string, database_url = '', without: readonly Protection[] = []): NodeProcess {
  const edited = without.length === 0 ? [] : ['--import', './test/faults/without.ts'];
  const program = ['src/cli/main.ts', 'serve', '--port', '0', '--data', data];
  const database = database_url === '' ? {} : { CONVOKE_DATABASE_URL: database_url };
  return NodeProcess.run(t, [...edited, ...program], {}, { ...SETTINGS, ...database, WITHOUT: without.join() });
}

/** Senders and machines that pull, and the record of what they saw. */
class Scene {
  readonly accepted: PullRecord['accepted'] = [];
  readonly kills: PullRecord['kills'] = [];
  /** When the sends began that a node accepted at the first try, by the URL of the node. */
  readonly #begun = new Map<string, number[]>();
  readonly #processes: PullingProcess[];
  #urls: string[];
  #numbers = 0;
  #is_over = false;
  #speaking: Promise<void>;

  private constructor(urls: string[], random: () => number) {
    this.#urls = urls;
    const instance_ids = [...new Set([...MEMBERS.values()].flat())];
    this.#processes = instance_ids.flatMap((instance_id) =>
      [0, 1].map(() => new PullingProcess(instance_id, urls, random)),
    );
    this.#speaking = this.#speak();
  }

  static async begin(urls: string[], random: () => number): Promise<Scene> {
    const url = urls[0] as string;
    for (const instance_id of new Set([...MEMBERS.values()].flat())) {
      const more = { transport: 'pull', ack_timeout_s: ACK_TIMEOUT_S };
      const body = { instance_id, instance_name: instance_id, agent_ids: ['a'], ...more };
      assert.equal((await ask(url, 'POST', '/api/v1/instances/register/', { body })).status, 201);
    }
    for (const [meeting_id, instance_ids] of MEMBERS) {
      for (const instance_id of instance_ids) {
        const body = { instance_id, meeting_id, agent_ids: ['a'] };
        assert.equal((await ask(url, 'POST', '/api/v1/instances/join-meeting/', { body })).status, 201);
      }
    }
    return new Scene(urls, random);
  }

  set urls(urls: string[]) {
    this.#urls = urls;
    for (const process of this.#processes) process.urls = urls;
  }

  async #speak(): Promise<void> {
    const meeting_ids = [...MEMBERS.keys()];
    while (!this.#is_over) {
      const number = ++this.#numbers;
      const meeting_id = meeting_ids[number % meeting_ids.length] as string;
      for (let tries = 0; ; tries++) {
        const url = this.#urls[number % this.#urls.length] as string;
        const from_ms = Date.now();
        const answer = await send(url, meeting_id, number, `key-${number}`).catch(() => null);
        if (answer !== null && answer.status < 300) {
          if (tries === 0) this.#begun.set(url, [...(this.#begun.get(url) ?? []), from_ms]);
          break;
        }
        await pause(20);
      }
      this.accepted.push({ meeting_id, number });
      await pause(10);
    }
  }

  /** Notes that the node at this URL is killed now. */
  kill(url: string): void {
    const at_ms = Date.now();
    const written_until_ms = this.#begun.get(url)?.at(-SENDS_MEANWHILE) ?? -Infinity;
    this.kills.push({ at_ms, unwritten_from_ms: Math.min(at_ms - IN_FLIGHT_MS, written_until_ms) });
  }

  /** Waits until everything is delivered, and collects the records of senders and machines. */
  async record(): Promise<PullRecord> {
    this.#is_over = true;
    await this.#speaking;
    for (const process of this.#processes) process.fails = false;
    await nothingPending(this.#urls[0] as string);
    await Promise.all(this.#processes.map((process) => process.end()));
    return {
      accepted: this.accepted,
      members: MEMBERS,
      received: this.#processes.flatMap(({ received }) => received),
      counted: this.#processes.flatMap(({ counted }) => counted),
      kills: this.kills,
    };
  }
}

/** The controls: breaks each promise in a copy of the record, and checks that the checker finds it. */
function assertControls(record: PullRecord): void {
  const { accepted, received, counted } = record;
  const { number } = accepted.at(-1)!;
  const kinds = (changed: Partial<PullRecord>): string[] =>
    brokenPromises({ ...record, ...changed }).map((line) => line.split(':')[0] as string);
  assert.ok(kinds({ received: received.filter((each) => each.number !== number) }).includes('lost'));
  const of = counted.at(-1)!;
  const again = received.find((each) => each.delivery_id === of.delivery_id && each.attempt === of.attempt)!;
  assert.ok(kinds({ received: [...received, { ...again, at_ms: of.at_ms + 60_000 }], kills: [] }).includes('twice'));
  const first = received.toSorted((a, b) => a.seq - b.seq)[0]!;
  const late = received.map((each) => (each.delivery_id === first.delivery_id ? { ...each, at_ms: Infinity } : each));
  assert.ok(kinds({ received: late }).includes('order'));
}

function assertKept(t: TestContext, record: PullRecord): void {
  const { accepted, received, counted, kills } = record;
  const again = received.length - new Set(received.map(({ delivery_id }) => delivery_id)).size;
  t.diagnostic(
    `${accepted.length} accepted, ${received.length} received (${again} again), ${counted.length} counted, ${kills.length} kills`,
  );
  assert.deepEqual(brokenPromises(record), []);
  assert.ok(accepted.length > 30 && again > 0, 'there was load, and something arrived again');
  assertControls(record);
}

test(`killed ${KILLS} times while machines pull, die and lose results: nothing lost, in order, twice only what was in hand`, async (t) => {
  const random = seededRandom(t);
  const data = await temporaryDirectory(t);
  let node = serve(t, data);
  const scene = await Scene.begin([await node.ready], random);
  for (let k = 0; k < KILLS; k++) {
    // On a busy machine a process may be killed before it has done anything.
    const accepted_before = scene.accepted.length;
    await until(
      'messages in this process',
      () => scene.accepted.length,
      (count) => count >= accepted_before + ACCEPTED_MIN,
    );
    await pause(random() * LOAD_MS_MAX);
    scene.kill(await node.ready);
    await node.end('SIGKILL');
    node = serve(t, data);
    scene.urls = [await node.ready];
  }
  await pause(LOAD_MS_MAX);
  assertKept(t, await scene.record());
});

test('the node is killed that delivers, while the other one forwards pulls to it; then it comes back', async (t) => {
  const random = seededRandom(t);
  const database_url = await makeDatabase();
  const data = await temporaryDirectory(t);
  const first = serve(t, data, database_url);
  const url = await first.ready;
  let second = serve(t, data, database_url);
  const urls = [url, await second.ready];
  await balanced(url, 2);
  const scene = await Scene.begin(urls, random);
  for (let k = 0; k < 2; k++) {
    await pause(3_000);
    scene.kill(await second.ready);
    await second.end('SIGKILL');
    scene.urls = [url];
    await balanced(url, 1);
    await pause(1_000);
    second = serve(t, data, database_url);
    scene.urls = [url, await second.ready];
    await balanced(url, 2);
  }
  await pause(3_000);
  assertKept(t, await scene.record());
});

test('a node stands still until another one has its lease, with pushes in hand: each result counts once', async (t) => {
  const { counted, machines, replies } = await standStill(t);
  assert.equal(new Set(counted).size, counted.length, 'no result counts twice');
  assert.equal(counted.length, machines);
  assert.equal(replies, machines, 'each replied once');
});

test('control: without the check of its lease, results count at the node that stood still and at the other one', async (t) => {
  const { counted } = await standStill(t, ['the lease of a result']);
  assert.ok(new Set(counted).size < counted.length, `${counted.length} counted`);
});

/**
 * Two nodes have handed out pushes. One node stands still until the other node has its partitions. Then machines report
 * their results to the node that stood still.
 *
 * @param without the protections that the node that stands still does not have
 */
async function standStill(t: TestContext, without: readonly Protection[] = []) {
  const database_url = await makeDatabase();
  const data = await temporaryDirectory(t);
  const other = serve(t, data, database_url);
  const url = await other.ready;
  const paused = serve(t, data, database_url, without);
  const paused_url = await paused.ready;
  await balanced(url, 2);
  const machines = Array.from({ length: 12 }, (_, k) => `machine-${k}`);
  for (const instance_id of machines) {
    const instance = { instance_id, instance_name: instance_id, agent_ids: ['a'], transport: 'pull', replies: true };
    const body = { ...instance, ack_timeout_s: 600 };
    assert.equal((await ask(url, 'POST', '/api/v1/instances/register/', { body })).status, 201);
    const joining = { instance_id, meeting_id: 'm', agent_ids: ['a'] };
    assert.equal((await ask(url, 'POST', '/api/v1/instances/join-meeting/', { body: joining })).status, 201);
  }
  assert.equal((await send(url, 'm', 1)).status, 201);
  const first = await Promise.all(machines.map((instance_id) => pulled(url, instance_id, { wait_s: 60 })));
  assert.ok(first.every(({ pushes }) => pushes.length === 1));

  paused.child.kill('SIGSTOP');
  await balanced(url, 1);
  // The node that took over hands out again the pushes that the node that stands still had handed out.
  const again = await Promise.all(machines.map((instance_id) => pulled(url, instance_id, { wait_s: 1 })));
  const lost = machines.filter((_, k) => again[k]!.pushes.length > 0);
  assert.ok(lost.length > 0 && lost.length < machines.length, `${lost.length} were in hand there`);
  // The results wait at the node that stands still until it continues. They are there before: otherwise the node could
  // learn first that it has lost its lease.
  const under_way = machines.map((instance_id, k) => beginPull(paused_url, instance_id, resultsOf(first[k]!, 'late')));
  await Promise.all(under_way.map(({ written }) => written));
  paused.child.kill('SIGCONT');
  const late = under_way.map(async ({ answer }, k) => {
    const { status, body } = await answer;
    if (status === 200) return body as unknown as Pulled;
    return pulled(paused_url, machines[k]!, resultsOf(first[k]!, 'late'));
  });
  const counted: string[] = [];
  const note = (pulls: readonly Pulled[]): void => {
    for (const { results } of pulls) {
      counted.push(...results.filter(({ became }) => became === 'counted').map(({ delivery_id }) => delivery_id));
    }
  };
  note(await Promise.all(late));
  note(await Promise.all(machines.map((instance_id, k) => pulled(url, instance_id, resultsOf(first[k]!, 'again')))));
  // The node that stood still gets partitions back. The pushes in hand of these partitions are handed out once more.
  const finish = async (instance_id: string): Promise<void> => {
    const handed_out = await pulled(url, instance_id, { wait_s: 0 });
    if (handed_out.pushes.length > 0) note([await pulled(url, instance_id, resultsOf(handed_out, 'once more'))]);
  };
  await until(
    'every delivery to be settled',
    async () => {
      await Promise.all(machines.map(finish));
      return (await deliveriesByState(url))['delivered'];
    },
    (delivered) => delivered === machines.length,
  );
  t.diagnostic(`${lost.length} handed out again`);
  const { body } = await ask(url, 'GET', '/api/v1/meetings/m/messages/?limit=100');
  const replies = (body['data'] as { in_reply_to?: string }[]).filter(({ in_reply_to }) => in_reply_to !== undefined);
  return { counted, machines: machines.length, replies: replies.length };
}

interface Pulled {
  pushes: { delivery_id: string; attempt: number }[];
  results: { delivery_id: string; became: string }[];
}

/**
 * Makes a pull, and repeats it until a node responds with 200: during a takeover no node may respond for the instance.
 */
async function pulled(url: string, instance_id: string, body: object): Promise<Pulled> {
  const pull = (): Promise<Answered> => ask(url, 'POST', `/api/v1/instances/${instance_id}/pull/`, { body });
  const { body: answer } = await until('an answer to a pull', pull, ({ status }) => status === 200);
  return answer as unknown as Pulled;
}

/** Makes a pull over a new connection. `written` resolves when the system has the request, also if no node reads it. */
function beginPull(
  url: string,
  instance_id: string,
  body: object,
): { written: Promise<unknown>; answer: Promise<Answered> } {
  const headers = { 'content-type': 'application/json' };
  const request = httpRequest(`${url}/api/v1/instances/${instance_id}/pull/`, {
    method: 'POST',
    agent: false,
    headers,
  });
  const answer = (async () => {
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    return { status: response.statusCode ?? 0, body: (await readJson(response)) as Answered['body'] };
  })();
  const written = once(request, 'finish');
  request.end(JSON.stringify(body));
  return { written, answer };
}

/** The body of a pull that reports the results of an earlier pull, each with a reply, and asks for no push. */
function resultsOf({ pushes }: Pulled, words: string): object {
  // No instance hosts the target of the reply, so no push follows.
  const body = JSON.stringify({ reply: { message: { words }, target_agents: ['nobody'] } });
  const results = pushes.map(({ delivery_id, attempt }) => ({ delivery_id, attempt, status_code: 200, body }));
  return { results, max: 0 };
}
