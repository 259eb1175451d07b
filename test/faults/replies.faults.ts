/**
 * SIGKILL at random moments under load, with machines that reply, in the response and later: each reply is in its meeting
 * once, when the delivery that it answers counts as delivered. Without the order of writes replies are lost. That they are
 * there twice without the keys shows a planted bug of the simulation.
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { inTime, until } from '../support/wait.ts';
import { ask, nothingPending } from './api.ts';
import { NodeProcess } from './node_process.ts';
import { type Answered, checkReplies, REPLIES, type RepliesRecord, type StoredReply } from './reply_checker.ts';
import { numberFrom, seededRandom, temporaryDirectory } from './run.ts';
import { Speakers } from './speakers.ts';
import type { PROTECTIONS } from './without.ts';
import { freePort } from '../support/free_port.ts';

const KILLS = numberFrom('FAULTS_KILLS', 60);
/** Up to so long after the ready line. */
const LOAD_MS_MAX = 500;
/** One in six is killed while it starts. */
const EARLY_SHARE = 1 / 6;
const START_MS_MAX = 600;
/** Between two sends of a speaker. */
const SEND_PAUSE_MS = 4;
const MEETINGS = ['alpha', 'beta', 'gamma'];

test(`killed ${KILLS} times under load: no reply is missing, and none is there twice`, async (t) => {
  const record = await runWithRepliers(t, KILLS);
  assert.deepEqual(checkReplies(record), { missing: [], twice: [], false: [] });
  const pushes = new Set(record.answered.map(({ webhook_id }) => webhook_id)).size;
  const again = record.answered.length - pushes;
  const later = record.answered.filter(({ how }) => how === 'later').length;
  t.diagnostic(JSON.stringify({ pushes, again, later, replies: record.stored.length }));
  assert.ok(record.stored.length > KILLS, 'there was load');
  assert.ok(again > 0, 'pushes came again');
});

test('control: without "stored before delivered" replies are missing', async (t) => {
  const record = await runWithRepliers(t, Math.min(KILLS, 15), 'stored before delivered');
  const { missing } = checkReplies(record);
  assert.ok(missing.length > 0);
  t.diagnostic(`missing: ${missing.length}`);
});

/** Runs the service on the same data and port until it was killed so often, and collects what everybody has to say. */
async function runWithRepliers(t: TestContext, kills: number, without?: keyof typeof PROTECTIONS) {
  const random = seededRandom(t);
  const data = await temporaryDirectory(t);
  const repliers = await Repliers.start(t);
  const port = await freePort();
  const serve = (): NodeProcess => {
    const program = ['src/cli/main.ts', 'serve', '--port', String(port), '--data', data];
    if (without === undefined) return NodeProcess.run(t, program);
    return NodeProcess.run(t, ['--import', './test/faults/without.ts', ...program], {}, { WITHOUT: without });
  };
  let node = serve();
  const url = await node.ready;
  await enrollRepliers(url, repliers.origin);
  const speakers = new Speakers(url, MEETINGS);
  speakers.pause_ms = SEND_PAUSE_MS;
  for (let killed = 0; killed < kills; killed++) {
    if (random() < EARLY_SHARE) await pause(random() * START_MS_MAX);
    else {
      await node.ready;
      await pause(random() * LOAD_MS_MAX);
    }
    await node.end('SIGKILL');
    node = serve();
  }
  await node.ready;
  await speakers.end();
  await nothingPending(url);
  await repliers.quiet();
  const record = { answered: repliers.answered, stored: await storedReplies(url), delivered: await deliveredOf(url) };
  assert.equal((await node.end('SIGTERM')).code, 0);
  return record satisfies RepliesRecord;
}

/** The process in repliers_process.ts, seen from the test. */
class Repliers {
  readonly origin: string;
  readonly answered: Answered[] = [];
  readonly #ask: () => Promise<{ answered: Answered[]; outstanding: number }>;

  private constructor(origin: string, tell: () => Promise<{ answered: Answered[]; outstanding: number }>) {
    this.origin = origin;
    this.#ask = tell;
  }

  static async start(t: TestContext): Promise<Repliers> {
    const child = fork(join(import.meta.dirname, 'repliers_process.ts'));
    t.after(() => child.kill('SIGKILL'));
    const [origin] = (await inTime('the machines', once(child, 'message'))) as [string];
    return new Repliers(origin, async () => {
      child.send('tell');
      const [told] = (await once(child, 'message')) as [{ answered: Answered[]; outstanding: number }];
      return told;
    });
  }

  /** Resolves when no later reply is still on its way. */
  async quiet(): Promise<void> {
    const look = async (): Promise<number> => {
      const { answered, outstanding } = await this.#ask();
      this.answered.push(...answered);
      return outstanding;
    };
    await until('the later replies', look, (outstanding) => outstanding === 0);
  }
}

/** Each machine has one agent, with its own name. */
async function enrollRepliers(url: string, origin: string): Promise<void> {
  for (const how of Object.keys(REPLIES)) {
    const instance = { instance_id: how, instance_name: how, agent_ids: [how], replies: true };
    const body = { ...instance, webhook_url: `${origin}/${how}` };
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
