/**
 * Three nodes on one PostgreSQL, as real processes. The test restarts one after another, while senders act like a
 * proxy.
 */
import assert from 'node:assert/strict';
import { Agent, request } from 'node:http';
import { test, type TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { ask, nothingPending } from './api.ts';
import { NodeProcess } from './node_process.ts';
import { temporaryDirectory } from './run.ts';
import { makeDatabase } from '../support/postgres.ts';
import { headerOf, pushOf, type Receiver, startReceiver } from '../support/receiver.ts';

const NODES = 3;
const MEETINGS = ['a', 'b', 'c', 'd'];
const SENDERS_PER_MEETING = 2;
/**
 * The pause between two sends of one sender. A stopping node waits a short time for the next request of an open
 * connection; this pause is much shorter.
 */
const PAUSE_MS = 10;
/**
 * A stopping node waits a second for the next request of an open connection. On a busy machine a sender may be late by
 * half a second; then the node may close its connection as it closes any idle connection, and the sender sends again.
 */
const PROMISED_MS = 500;
/** The number of sends between two restarts. */
const SENDS = 100;
const STOP_MS_MAX = 7_000;

/**
 * Senders that send to the nodes in turn, on connections that stay open. When a node refuses the connection, nothing
 * was sent. Only then they send the same message to the next node, as nginx and HAProxy do with a POST.
 */
class Senders {
  /** The addresses of the nodes. */
  readonly urls: string[];
  readonly accepted = new Map<string, number[]>(MEETINGS.map((meeting_id) => [meeting_id, []]));
  /** Responses other than 201, and sends whose connection was cut off, so that nobody knows whether they are stored. */
  readonly errors: string[] = [];
  /** How many accepted sends got a response that ends the connection, and how many connections were refused. */
  last_answers = 0;
  refused = 0;
  /** How many connections a node closed because their sender did not use them. */
  unused = 0;
  #sends = 0;
  #keys = 0;
  #onSends: { at: number; resolve: () => void } | null = null;
  #told_to_end = false;
  readonly #sending: Promise<unknown>;

  constructor(urls: string[]) {
    this.urls = urls;
    this.#sending = Promise.all(
      MEETINGS.flatMap((meeting_id) =>
        Array.from({ length: SENDERS_PER_MEETING }, (_, k) => this.#send(meeting_id, k)),
      ),
    );
  }

  /** Resolves after this many more responses. */
  more(sends: number): Promise<void> {
    return new Promise((resolve) => {
      this.#onSends = { at: this.#sends + sends, resolve };
    });
  }

  async end(): Promise<void> {
    this.#told_to_end = true;
    await this.#sending;
  }

  async #send(meeting_id: string, first: number): Promise<void> {
    const agent = new Agent({ keepAlive: true });
    const used_at_ms = new Map<string, number>();
    for (let turn = first; !this.#told_to_end; turn++) {
      await this.#sendOnce(agent, used_at_ms, meeting_id, turn);
      this.#sends++;
      if (this.#onSends !== null && this.#sends >= this.#onSends.at) this.#onSends.resolve();
      await pause(PAUSE_MS);
    }
    agent.destroy();
  }

  async #sendOnce(agent: Agent, used_at_ms: Map<string, number>, meeting_id: string, turn: number): Promise<void> {
    const key = `${meeting_id} ${++this.#keys}`;
    for (let tried = 0; tried < NODES; tried++) {
      const url = this.urls[(turn + tried) % NODES] as string;
      const unused_ms = performance.now() - (used_at_ms.get(url) ?? Infinity);
      try {
        const { status, is_last, text } = await post(agent, `${url}/api/v1/meetings/${meeting_id}/messages/`, key);
        used_at_ms.set(url, performance.now());
        if (status !== 201) {
          this.errors.push(`${status} ${text}`);
          return;
        }
        if (is_last) this.last_answers++;
        this.accepted.get(meeting_id)?.push((JSON.parse(text) as { seq: number }).seq);
        return;
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        if (unused_ms > PROMISED_MS && (code === 'ECONNRESET' || code === 'EPIPE')) {
          this.unused++;
          continue;
        }
        if (code !== 'ECONNREFUSED') {
          this.errors.push(String(error));
          return;
        }
        this.refused++;
      }
    }
    this.errors.push('no node took it');
  }
}

function post(agent: Agent, url: string, key: string): Promise<{ status: number; is_last: boolean; text: string }> {
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'idempotency-key': key };
    const sent = request(url, { agent, method: 'POST', headers }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.on('error', reject);
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, is_last: response.headers.connection === 'close', text }),
      );
    });
    sent.on('error', reject);
    sent.end('{"message":{}}');
  });
}

async function startNodes(t: TestContext): Promise<{ start: () => Promise<NodeProcess>; nodes: NodeProcess[] }> {
  const database_url = await makeDatabase();
  const data = await temporaryDirectory(t);
  const start = async (): Promise<NodeProcess> => {
    const node = NodeProcess.serveOn(t, database_url, data);
    await node.ready;
    return node;
  };
  // The first node makes the key that all nodes use.
  const first = await start();
  return { start, nodes: [first, ...(await Promise.all([start(), start()]))] };
}

/** The seqs of the messages of a meeting that the machine got, in the order of their arrival. */
function seqsOf({ requests }: Receiver, meeting_id: string): number[] {
  return requests
    .filter((push) => pushOf(push).meeting_id === meeting_id)
    .map((push) => Number(headerOf(push, 'convoke-seq')));
}

test('three nodes are restarted one after another: no sender sees an error, and each message arrives once, in order', async (t) => {
  const { start, nodes } = await startNodes(t);
  const urls = await Promise.all(nodes.map(({ ready }) => ready));
  const receivers = await Promise.all([startReceiver(t), startReceiver(t), startReceiver(t)]);
  for (const [i, { url: webhook_url }] of receivers.entries()) {
    const instance_id = `machine-${i}`;
    const registration = { instance_id, instance_name: instance_id, agent_ids: ['a'], webhook_url };
    await ask(urls[0]!, 'POST', '/api/v1/instances/register/', { body: registration });
    for (const meeting_id of MEETINGS) {
      const body = { instance_id, meeting_id, agent_ids: ['a'] };
      await ask(urls[0]!, 'POST', '/api/v1/instances/join-meeting/', { body });
    }
  }

  const senders = new Senders(urls);
  t.after(() => senders.end());
  for (const [k, node] of nodes.entries()) {
    await senders.more(SENDS);
    const { code, duration_ms } = await node.end('SIGTERM');
    assert.equal(code, 0);
    assert.ok(duration_ms < STOP_MS_MAX, `${duration_ms} ms`);
    await senders.more(SENDS);
    senders.urls[k] = await (await start()).ready;
  }
  await senders.more(SENDS);
  await senders.end();

  assert.deepEqual(senders.errors, []);
  const { last_answers, refused, unused } = senders;
  t.diagnostic(`${last_answers} last answers of connections, ${refused} refused, ${unused} cut that were not used`);
  assert.ok(last_answers >= NODES, 'control: connections were open when their node stopped');
  assert.ok(refused >= NODES, 'control: nodes were gone, and others were asked');
  await nothingPending(senders.urls[0]!);
  for (const [meeting_id, seqs] of senders.accepted) {
    const all = Array.from(seqs, (_, i) => i + 1);
    assert.deepEqual(
      seqs.toSorted((a, b) => a - b),
      all,
    );
    for (const receiver of receivers) assert.deepEqual(seqsOf(receiver, meeting_id), all);
  }
});
