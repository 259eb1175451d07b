/**
 * SIGKILL at random moments under load, with machines that reply in the response, in the result of a pull, or later.
 * When a delivery counts as delivered, each of its replies is in the meeting once. First the test kills a process with
 * a data file, then one of two nodes on PostgreSQL. The controls show that replies are lost when they are not written
 * before the result, and stored twice when they have no keys.
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { freePort } from '../support/free_port.ts';
import { makeDatabase } from '../support/postgres.ts';
import { inTime, until } from '../support/wait.ts';
import { ask, nothingPending, send } from './api.ts';
import { balanced } from './cluster.ts';
import { NodeProcess } from './node_process.ts';
import type { Asked, RepliesReport } from './repliers_process.ts';
import { type Answered, checkReplies, REPLIES, type RepliesRecord, type StoredReply } from './reply_checker.ts';
import { numberFrom, seededRandom, temporaryDirectory } from './run.ts';
import { Speakers } from './speakers.ts';
import type { Protection } from './without.ts';

const KILLS = numberFrom('FAULTS_KILLS', 60);
/** The longest time between the ready line and a kill. */
const LOAD_MS_MAX = 500;
/** One process in six is killed while it starts. */
const EARLY_SHARE = 1 / 6;
const START_MS_MAX = 600;
/** Every second other process is killed after it has accepted this many messages: on a busy machine few would. */
const BUSY_SHARE = 1 / 2;
const ACCEPTED_MIN = 2;
/** The pause between two sends of a speaker. */
const SEND_PAUSE_MS = 4;
/** For kills of one of two nodes. Its instances wait until its lease has ended, so there are fewer kills and sends. */
const NODE_KILLS = numberFrom('FAULTS_NODE_KILLS', 3);
const NODE_KILLS_MAX = 5 * NODE_KILLS;
const NODE_SEND_PAUSE_MS = 100;
const MEETINGS = ['alpha', 'beta', 'gamma'];
/** With these settings the service soon retries a push whose response never arrived at the machine. */
const ACK_TIMEOUT_S = 5;
const SETTINGS = { CONVOKE_RETRY_SCHEDULE: '50ms,50ms,50ms,50ms,50ms,50ms,50ms,50ms' };

test(`killed ${KILLS} times under load: no reply is missing, and none is there twice`, async (t) => {
  const record = await runWithRepliers(t, KILLS);
  assertKept(t, record);
  assert.ok(record.stored.length > KILLS, 'there was load');
});

test(`one of two nodes on PostgreSQL is killed, ${NODE_KILLS} times: no reply is missing, and none is there twice`, async (t) => {
  const random = seededRandom(t);
  const database_url = await makeDatabase();
  const data = await temporaryDirectory(t);
  const repliers = await Repliers.start(t);
  const ports = [await freePort(), await freePort()];
  const serve = (port: number): NodeProcess => serveOn(t, port, data, { CONVOKE_DATABASE_URL: database_url });
  const nodes = [serve(ports[0]!)];
  const urls = [await nodes[0]!.ready];
  nodes.push(serve(ports[1]!));
  urls.push(await nodes[1]!.ready);
  await balanced(urls[0]!, 2);
  await enrollRepliers(urls[0]!, repliers.origin);
  repliers.pull(urls);
  const speakers = new Speakers(urls[0]!, MEETINGS);
  speakers.urls = urls;
  speakers.pause_ms = NODE_SEND_PAUSE_MS;
  // A few kills may meet no push in flight: then more kills follow.
  for (let killed = 0; killed < NODE_KILLS || (killed < NODE_KILLS_MAX && !(await repliers.cameAgain())); killed++) {
    await pause(random() * LOAD_MS_MAX);
    const k = killed % 2;
    await nodes[k]!.end('SIGKILL');
    await balanced(urls[1 - k]!, 1);
    nodes[k] = serve(ports[k]!);
    await nodes[k].ready;
    await balanced(urls[k]!, 2);
  }
  assertKept(t, await recordOf(urls[0]!, speakers, repliers));
});

test('control: without "stored before delivered" replies are missing', async (t) => {
  const record = await runWithRepliers(t, Math.min(KILLS, 15), ['stored before delivered']);
  const { missing } = checkReplies(record);
  assert.ok(missing.length > 0);
  t.diagnostic(`missing: ${missing.length}`);
});

for (const [without, twice] of [
  [[], 0],
  [['a key for each reply'], REPLIES.one + REPLIES.three + REPLIES.pulled],
] as [Protection[], number][]) {
  const what = twice === 0 ? 'its replies are there once' : 'control: without their keys they are there twice';
  test(`killed when the replies to a push are stored and it is not settled: ${what}`, async (t) => {
    const data = await temporaryDirectory(t);
    const repliers = await Repliers.start(t);
    const port = await freePort();
    const killed = serveOn(t, port, data, {}, [...without, 'settled soon']);
    const url = await killed.ready;
    await enrollRepliers(url, repliers.origin);
    repliers.pull([url]);
    assert.equal((await send(url, MEETINGS[0]!, 1)).status, 201);
    const all = Object.values(REPLIES).reduce((sum, count) => sum + count, 0);
    await until(
      'the replies',
      async () => (await storedReplies(url)).length,
      (length) => length === all,
    );
    // The push whose reply comes later waits for no reply: its result is written by itself.
    await until(
      'the result of the push that is answered later',
      async () => (await deliveredOf(url)).size,
      (delivered) => delivered === 1,
    );
    await killed.end('SIGKILL');
    const node = serveOn(t, port, data, {}, without);
    await node.ready;
    const { findings, again } = judged(await recordOf(url, null, repliers));
    assert.deepEqual([findings.missing, findings.false, again], [[], [], 3]);
    assert.equal(findings.twice.length, twice);
  });
}

const pushesOf = (answered: readonly Answered[]): number => new Set(answered.map(({ webhook_id }) => webhook_id)).size;

function judged(record: RepliesRecord) {
  const pushes = pushesOf(record.answered);
  return { findings: checkReplies(record), pushes, again: record.answered.length - pushes };
}

function assertKept(t: TestContext, record: RepliesRecord): void {
  const { findings, pushes, again } = judged(record);
  const of = (how: Answered['how']) => record.answered.filter((each) => each.how === how).length;
  const figures = { pushes, again, later: of('later'), pulled: of('pulled'), replies: record.stored.length };
  t.diagnostic(JSON.stringify(figures));
  assert.deepEqual(findings, { missing: [], twice: [], false: [] });
  assert.ok(again > 0, 'pushes came again');
  assert.ok(figures.later > 0 && figures.pulled > 0, 'all of them replied');
}

function serveOn(
  t: TestContext,
  port: number,
  data: string,
  settings: NodeJS.ProcessEnv = {},
  without: readonly Protection[] = [],
): NodeProcess {
  const program = ['src/cli/main.ts', 'serve', '--port', String(port), '--data', data];
  const edited = without.length === 0 ? [] : ['--import', './test/faults/without.ts'];
  return NodeProcess.run(t, [...edited, ...program], {}, { ...SETTINGS, ...settings, WITHOUT: without.join() });
}

/** Kills the service so often, each time starts it again with the same data, and collects the records of all parts. */
async function runWithRepliers(t: TestContext, kills: number, without?: readonly Protection[]): Promise<RepliesRecord> {
  const random = seededRandom(t);
  const data = await temporaryDirectory(t);
  const repliers = await Repliers.start(t);
  const port = await freePort();
  const serve = (): NodeProcess => serveOn(t, port, data, {}, without);
  let node = serve();
  const url = await node.ready;
  await enrollRepliers(url, repliers.origin);
  repliers.pull([url]);
  const speakers = new Speakers(url, MEETINGS);
  speakers.pause_ms = SEND_PAUSE_MS;
  for (let killed = 0; killed < kills; killed++) {
    if (random() < EARLY_SHARE) await pause(random() * START_MS_MAX);
    else {
      await node.ready;
      if (random() < BUSY_SHARE) await speakers.more(ACCEPTED_MIN);
      await pause(random() * LOAD_MS_MAX);
    }
    await node.end('SIGKILL');
    node = serve();
  }
  await node.ready;
  const record = await recordOf(url, speakers, repliers);
  assert.equal((await node.end('SIGTERM')).code, 0);
  return record;
}

/** Waits until everything is delivered, and returns what senders, machines and the service saw. */
async function recordOf(url: string, speakers: Speakers | null, repliers: Repliers): Promise<RepliesRecord> {
  await speakers?.end();
  await nothingPending(url);
  await repliers.quiet();
  return { answered: repliers.answered, stored: await storedReplies(url), delivered: await deliveredOf(url) };
}

/** Starts the process of repliers_process.ts, and talks with it. */
class Repliers {
  readonly origin: string;
  readonly answered: Answered[] = [];
  readonly #say: (asked: Asked) => void;
  readonly #report: () => Promise<RepliesReport>;

  private constructor(origin: string, say: (asked: Asked) => void, report: () => Promise<RepliesReport>) {
    this.origin = origin;
    this.#say = say;
    this.#report = report;
  }

  static async start(t: TestContext): Promise<Repliers> {
    const child = fork(join(import.meta.dirname, 'repliers_process.ts'));
    t.after(() => child.kill('SIGKILL'));
    const [origin] = (await inTime('the machines', once(child, 'message'))) as [string];
    const say = (asked: Asked): void => void child.send(asked);
    return new Repliers(origin, say, async () => ((await once(child, 'message')) as [RepliesReport])[0]);
  }

  /** Says the addresses of the service to the machine that pulls, which then begins to pull. */
  pull(urls: string[]): void {
    this.#say({ urls });
  }

  /** Whether a push has come again so far. */
  async cameAgain(): Promise<boolean> {
    await this.#look();
    return pushesOf(this.answered) < this.answered.length;
  }

  /** Resolves when all later replies are stored. */
  async quiet(): Promise<void> {
    await until(
      'the later replies',
      () => this.#look(),
      (outstanding) => outstanding === 0,
    );
  }

  /** Notes the replies since the last call; returns how many later replies are not stored yet. */
  async #look(): Promise<number> {
    this.#say('report');
    const { answered, outstanding } = await this.#report();
    this.answered.push(...answered);
    return outstanding;
  }
}

/** Registers the machines. Each has one agent, with its own name. */
async function enrollRepliers(url: string, origin: string): Promise<void> {
  for (const how of Object.keys(REPLIES)) {
    const instance = { instance_id: how, instance_name: how, agent_ids: [how], replies: true };
    const way =
      how === 'pulled' ? { transport: 'pull', ack_timeout_s: ACK_TIMEOUT_S } : { webhook_url: `${origin}/${how}` };
    const body = { ...instance, ...way };
    assert.equal((await ask(url, 'POST', '/api/v1/instances/register/', { body })).status, 201);
    for (const meeting_id of MEETINGS) {
      const joining = { body: { instance_id: how, meeting_id, agent_ids: [how] } };
      assert.equal((await ask(url, 'POST', '/api/v1/instances/join-meeting/', joining)).status, 201);
    }
  }
}

async function storedReplies(url: string): Promise<StoredReply[]> {
  const stored: StoredReply[] = [];
  for (const meeting_id of MEETINGS) {
    for (let after_seq = 0, more = true; more;) {
      const path = `/api/v1/meetings/${meeting_id}/messages/?limit=500&after_seq=${after_seq}`;
      const { body } = await ask(url, 'GET', path);
      const page = body['data'] as {
        message_id: string;
        seq: number;
        from_agent?: string;
        in_reply_to?: string;
        message: { answers?: string; place: number };
      }[];
      for (const { message_id, seq, from_agent, in_reply_to, message } of page) {
        after_seq = seq;
        const { answers, place } = message;
        if (answers !== undefined) stored.push({ meeting_id, message_id, from_agent, in_reply_to, answers, place });
      }
      more = body['has_more'] === true;
    }
  }
  return stored;
}

async function deliveredOf(url: string): Promise<Set<string>> {
  const delivered = new Set<string>();
  let cursor: string | null = '';
  while (cursor !== null) {
    const query: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const { body } = await ask(url, 'GET', `/api/v1/deliveries/?state=delivered&limit=500${query}`);
    for (const { delivery_id } of body['data'] as { delivery_id: string }[]) delivered.add(delivery_id);
    cursor = body['next_cursor'] as string | null;
  }
  return delivered;
}
