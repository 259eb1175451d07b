/**
 * The parts that the peers share, as a team would write them with Node. A Fastify route takes messages. A sender signs
 * each push and makes it with undici's `dispatch` over connections that stay open. Bodies and headers are as in pushes
 * of Convoke.
 */
import Fastify from 'fastify';
import type { AddressInfo } from 'node:net';
import { Pool } from 'undici';
import { agentsToNotify } from '../../src/domain/agents_to_notify.ts';
import { pushBody, pushBodyHead } from '../../src/domain/push_body.ts';
import { signingKey, signPush } from '../../src/domain/signature.ts';
import { type Fleet, membersOf, SECRET } from '../load/fleet.ts';

export interface PeerOptions {
  fleet: Fleet;
  /** A directory for the data of the peer. */
  data: string;
}

export interface BullmqOptions extends PeerOptions {
  appendfsync: 'always' | 'everysec';
}

/** A push that waits in a queue, as plain data. */
export interface PushJob {
  instance_id: string;
  message_id: string;
  body: string;
}

interface Recipient {
  instance_id: string;
  agent_ids: string[];
}

interface SendBody {
  message: Record<string, unknown>;
  target_agents?: string[];
}

const KEY = signingKey(SECRET);
/** How many connections to one instance, as many as Convoke allows. */
const CONNECTIONS = 4;

let last_message = 0;

/** The instances by meeting. They are in memory, because a team would cache them there. */
function recipientsOf(fleet: Fleet): Map<string, Recipient[]> {
  const meetings = new Map<string, Recipient[]>();
  for (const { instance_id, meeting_id, agent_id } of membersOf(fleet)) {
    const recipients = meetings.get(meeting_id) ?? [];
    recipients.push({ instance_id, agent_ids: [agent_id] });
    meetings.set(meeting_id, recipients);
  }
  return meetings;
}

/**
 * Listens for messages, and prints the ready line.
 *
 * @param accept stores or makes the pushes of a message; when it resolves, the sender gets the response
 */
export async function listen(fleet: Fleet, accept: (jobs: PushJob[]) => Promise<unknown>): Promise<void> {
  const meetings = recipientsOf(fleet);
  const app = Fastify();
  app.post<{ Params: { meeting_id: string }; Body: SendBody }>(
    '/api/v1/meetings/:meeting_id/messages/',
    {
      schema: {
        body: {
          type: 'object',
          required: ['message'],
          additionalProperties: false,
          properties: {
            message: { type: 'object' },
            target_agents: { type: 'array', items: { type: 'string' }, maxItems: 1000 },
          },
        },
      },
    },
    async ({ params: { meeting_id }, body: { message, target_agents } }, reply) => {
      const message_id = `msg_${process.pid}_${++last_message}`;
      const head = pushBodyHead(meeting_id, JSON.stringify(message));
      const timestamp = typeof message['created_at'] === 'string' ? message['created_at'] : '';
      const targets = target_agents === undefined ? null : new Set(target_agents);
      const jobs: PushJob[] = [];
      for (const { instance_id, agent_ids } of meetings.get(meeting_id) ?? []) {
        const agents = agentsToNotify(agent_ids, targets);
        if (agents.length === 0) continue;
        jobs.push({ instance_id, message_id, body: pushBody(head, JSON.stringify(agents), timestamp).toString() });
      }
      await accept(jobs);
      return reply.code(201).send({ message_id, meeting_id, deliveries_queued: jobs.length });
    },
  );
  await app.listen({ host: '127.0.0.1', port: 0 });
  console.log(`peer ready http://127.0.0.1:${(app.server.address() as AddressInfo).port}`);
}

/** Returns a function that makes a push. It resolves with the status, or rejects when the machine was not reached. */
export function sender(fleet: Fleet): (delivery_id: string, job: PushJob) => Promise<number> {
  const targets = new Map<string, { pool: Pool; path: string }>();
  for (const { instance_id, webhook_url } of membersOf(fleet)) {
    const { origin, pathname } = new URL(webhook_url);
    targets.set(instance_id, {
      pool: new Pool(origin, { connections: CONNECTIONS, allowH2: false, headersTimeout: 5_000, bodyTimeout: 5_000 }),
      path: pathname,
    });
  }
  return (delivery_id, { instance_id, message_id, body: text }) => {
    const { pool, path } = targets.get(instance_id)!;
    const body = Buffer.from(text);
    const timestamp_s = Math.floor(Date.now() / 1000);
    const headers = {
      'content-type': 'application/json',
      'user-agent': 'Peer/bench',
      'webhook-id': delivery_id,
      'webhook-timestamp': String(timestamp_s),
      'webhook-signature': signPush([KEY], delivery_id, timestamp_s, body),
      'idempotency-key': delivery_id,
      'convoke-message-id': message_id,
    };
    return new Promise((resolve, reject) => {
      let status = 0;
      pool.dispatch(
        { path, method: 'POST', headers, body },
        {
          onRequestStart() {},
          onResponseStart(_controller, status_code) {
            status = status_code;
          },
          onResponseData() {},
          onResponseEnd: () => resolve(status),
          onResponseError: (_controller, error) => reject(error),
        },
      );
    });
  };
}

/**
 * Collects items while earlier batches are stored, so that one commit stores many items. Peers use it as a group
 * commit.
 */
export class Gatherer<Item> {
  readonly #keep: (items: Item[]) => Promise<unknown>;
  readonly #in_flight_max: number;
  readonly #items_max: number;
  #waiting: { items: Item[]; resolve: () => void; reject: (error: unknown) => void }[] = [];
  #in_flight = 0;
  #scheduled = false;

  constructor(items_max: number, in_flight_max: number, keep: (items: Item[]) => Promise<unknown>) {
    this.#items_max = items_max;
    this.#in_flight_max = in_flight_max;
    this.#keep = keep;
  }

  add(items: Item[]): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#waiting.push({ items, resolve, reject });
    this.#schedule();
    return promise;
  }

  #schedule(): void {
    if (this.#scheduled || this.#in_flight >= this.#in_flight_max || this.#waiting.length === 0) return;
    this.#scheduled = true;
    setImmediate(() => void this.#run());
  }

  async #run(): Promise<void> {
    this.#scheduled = false;
    let count = 0;
    let items = 0;
    while (count < this.#waiting.length && (count === 0 || items < this.#items_max)) {
      items += this.#waiting[count++]!.items.length;
    }
    const batch = this.#waiting.splice(0, count);
    this.#in_flight++;
    try {
      await this.#keep(batch.flatMap((waiting) => waiting.items));
      for (const { resolve } of batch) resolve();
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
    this.#in_flight--;
    this.#schedule();
  }
}

/** Ends a peer cleanly, after SIGTERM or when its parent process has ended. */
export function onEnd(end: () => Promise<unknown>): void {
  let ended = false;
  const once = (): void => {
    if (ended) return;
    ended = true;
    end()
      .catch((error: unknown) => console.error(error))
      .finally(() => process.exit());
  };
  process.on('SIGTERM', once);
  process.once('disconnect', once);
  process.on('SIGINT', () => {});
}
