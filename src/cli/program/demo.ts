/**
 * Two agents on this machine hold a short conversation, over real HTTP and with nothing that a user could not write:
 * each is a webhook receiver of the SDK, and each answers by sending a message to the meeting.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ConvokeClient, ConvokeError, createReceiver, type Push } from '@convoke/sdk';
import { toNodeListener } from '@convoke/sdk/node';
import { pino } from 'pino';
import { readConfig } from '../../config.ts';
import { createConvoke } from '../../convoke.ts';
import { clientFor, DEFAULT_URL } from './api.ts';
import { CommandFailure, EXIT } from './exit.ts';
import { plain, print, styled } from './terminal.ts';

/** Longer than any conversation on one machine takes; after it, something is wrong. */
const DEMO_MS_MAX = 20_000;

/** Answers are written down in batches, some milliseconds after they came. */
const SETTLED_PAUSE_MS = 20;
const SETTLED_TRIES_MAX = 100;

const OPENING = 'Ada, Ben: what does a machine need to take part in a meeting?';

/** What the agents say to each other, in turns; Ada begins. */
const TURNS = [
  'An address. Whoever registers a webhook hears every message of the meeting.',
  'And a way to know that it was Convoke who knocked: I verify the signature first.',
  'What if my machine sleeps?',
  'Then your messages wait for you, and come in the order in which they were said.',
];

/** The opening goes to both, each turn to the other one. */
const PUSHES = 2 + TURNS.length;

interface Agent {
  instance_id: string;
  agent_id: string;
  server: Server;
}

interface Service {
  client: ConvokeClient;
  is_own: boolean;
  close: () => Promise<void>;
}

/** Runs the conversation to its end and cleans up. */
export async function demo(url: string | undefined, apiKey: string | undefined): Promise<void> {
  const service = await findService(url, apiKey);
  const conversation = new Conversation(service.client);
  try {
    const where = service.is_own ? 'started for this demo, in a temporary directory' : 'already running';
    say('service', `${service.client.base_url} (${where})`);
    await conversation.hold();
    const delivered = await conversation.delivered();
    say('done', `the service has ${delivered} of ${PUSHES} pushes on record as delivered`);
    if (delivered < PUSHES) throw new CommandFailure(EXIT.failed, 'not every push was delivered');
    print('\nNext: `convoke serve` runs the service, `convoke --help` lists what else there is.');
  } finally {
    await conversation.cleanUp();
    await service.close();
  }
}

class Conversation {
  readonly #client: ConvokeClient;
  readonly #meeting_id = `demo-${randomBytes(3).toString('hex')}`;
  readonly #agents: Agent[] = [];
  readonly #over = Promise.withResolvers<void>();
  #turn = 0;
  #pushes = 0;

  constructor(client: ConvokeClient) {
    this.#client = client;
    // What fails while the agents are still joining is met when the conversation is waited for, not before.
    this.#over.promise.catch(() => {});
  }

  async hold(): Promise<void> {
    const interrupt = () => this.#over.reject(new CommandFailure(EXIT.failed, 'the demo was interrupted'));
    process.once('SIGINT', interrupt).once('SIGTERM', interrupt);
    await this.#takePart('ada');
    await this.#takePart('ben');
    const sent = await this.#client.sendMessage(this.#meeting_id, messageFrom('you', OPENING));
    say('send', `#${sent.seq} you to everybody: ${OPENING}`);

    const timer = setTimeout(() => this.#over.reject(new CommandFailure(EXIT.failed, TOO_SLOW)), DEMO_MS_MAX);
    await this.#over.promise.finally(() => clearTimeout(timer));
  }

  /** Starts the receiver of an agent, registers it as an instance, and joins the meeting. */
  async #takePart(agent_id: string): Promise<void> {
    const instance_id = `${this.#meeting_id}-${agent_id}`;
    const secret = `whsec_${randomBytes(32).toString('base64')}`;
    const receive = createReceiver({ secret, onPush: (push) => this.#hear(agent_id, push) });
    const server = createServer(toNodeListener((request) => this.#receive(agent_id, request, receive)));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.#agents.push({ instance_id, agent_id, server });

    const webhook_url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/convoke`;
    const agent_ids = [agent_id];
    const instance_name = `${agent_id} of the demo`;
    await this.#client.register({ instance_id, instance_name, agent_ids, webhook_url, webhook_secret: secret });
    await this.#client.joinMeeting({ instance_id, meeting_id: this.#meeting_id, agent_ids });
    say('join', `${agent_id} joins ${this.#meeting_id} from ${webhook_url}`);
  }

  async #receive(
    agent_id: string,
    request: Request,
    receive: (request: Request) => Promise<Response>,
  ): Promise<Response> {
    const response = await receive(request);
    if (response.status !== 200) {
      const reason = plain(await response.clone().text());
      this.#over.reject(new CommandFailure(EXIT.failed, `${agent_id} answered ${response.status}: ${reason}`));
    }
    return response;
  }

  /** Called with pushes whose signature was verified; what is thrown or not called means no 200. */
  #hear(agent_id: string, push: Push): void {
    const said = `#${push.seq} ${String(push.message['from'])}: ${String(push.message['content'])}`;
    say('push', `${agent_id} hears ${plain(said)}`);
    say('', styled('dim', `${push.webhook_id}, signature verified, attempt ${push.attempt}, answered 200`));
    this.#pushes += 1;
    const is_last_word = push.seq === this.#turn + 1;
    const is_next = agent_id === (this.#turn % 2 === 0 ? 'ada' : 'ben');
    // An agent thinks after the push was answered: Convoke waits 5 seconds for an answer, and some agents think longer.
    if (is_last_word && is_next) setImmediate(() => this.#answer(agent_id));
    if (this.#pushes === PUSHES) setImmediate(() => this.#over.resolve());
  }

  #answer(agent_id: string): void {
    const content = TURNS[this.#turn];
    if (content === undefined) return;
    this.#turn += 1;
    const to = agent_id === 'ada' ? 'ben' : 'ada';
    const message = messageFrom(agent_id, content);
    say('send', `${agent_id} to ${to}: ${content}`);
    this.#client
      .sendMessage(this.#meeting_id, message, { target_agents: [to] })
      .catch((error: unknown) => this.#over.reject(error));
  }

  /** How many pushes the service has settled as delivered, once none is pending any more. */
  async delivered(): Promise<number> {
    for (let tries = 1; ; tries++) {
      const { data } = await this.#client.listDeliveries({ meeting_id: this.#meeting_id });
      const pending = data.some(({ state }) => state === 'pending');
      if (!pending || tries === SETTLED_TRIES_MAX) return data.filter(({ state }) => state === 'delivered').length;
      await sleep(SETTLED_PAUSE_MS);
    }
  }

  /** Removes the instances; the messages stay until their retention ends, as all messages do. */
  async cleanUp(): Promise<void> {
    for (const { instance_id, server } of this.#agents) {
      await this.#client.deleteInstance(instance_id).catch(() => {});
      server.close();
      server.closeAllConnections();
    }
  }
}

const TOO_SLOW =
  `the conversation did not end within ${DEMO_MS_MAX / 1000} s; ` +
  '`convoke deliveries` says what became of each push, if the service still runs';

function messageFrom(from: string, content: string): object {
  return { from, content, created_at: new Date().toISOString() };
}

/** The service at the URL, or the one at the usual place, or one of our own. */
async function findService(url: string | undefined, apiKey: string | undefined): Promise<Service> {
  const client = clientFor({ url: url ?? DEFAULT_URL, ...(apiKey !== undefined && { apiKey }) });
  try {
    await client.listMeetings({ limit: 1 });
    return { client, is_own: false, close: async () => {} };
  } catch (error) {
    if (!(error instanceof ConvokeError)) throw error;
    if (url !== undefined) say('service', `${url} cannot be used (${error.code}), so the demo starts its own`);
  }
  const data = await mkdtemp(join(tmpdir(), 'convoke-demo-'));
  const { config } = readConfig({ flags: { port: '0', data } });
  const convoke = await createConvoke(config, { log: pino({ level: 'silent' }) });
  return {
    client: clientFor({ url: convoke.url }),
    is_own: true,
    async close() {
      await convoke.close();
      await rm(data, { recursive: true, force: true });
    },
  };
}

function say(what: string, line: string): void {
  print(`${styled('cyan', what.padEnd(8))} ${line}`);
}
