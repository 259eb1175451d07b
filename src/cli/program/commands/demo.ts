/** Runs the conversation of src/demo over real HTTP and shows every push on the terminal. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ConvokeClient, ConvokeError, type Push } from '@convoke/sdk';
import { pino } from 'pino';
import { readConfig } from '../../../config/read_config.ts';
import { createConvoke } from '../../../convoke.ts';
import { systemClock } from '../../../delivery/clock.ts';
import { Conversation, type Question } from '../../../demo/conversation.ts';
import { OPENING, TURNS } from '../../../demo/script.ts';
import { clientFor, DEFAULT_URL } from '../api.ts';
import { CommandFailure, EXIT } from '../exit.ts';
import { goPastProxy } from '../past_proxy.ts';
import { goOnUnread, plain, print, styled } from '../terminal.ts';
import { typed } from '../command_name.ts';

/** No conversation on one machine takes longer: after this time, something is wrong. */
const DEMO_MS_MAX = 20_000;

/**
 * The pause before another look at the deliveries: the service writes results some milliseconds after the responses.
 */
const SETTLED_PAUSE_MS = 20;
const SETTLED_TRIES_MAX = 100;

const SHOWN_TURNS = TURNS.slice(0, 4);

/** The opening goes to both agents; each turn goes only to the agent that did not send it. */
const PUSHES = 2 + SHOWN_TURNS.length;

interface Service {
  client: ConvokeClient;
  is_own: boolean;
  close: () => Promise<void>;
}

/**
 * Runs the conversation to its end and cleans up.
 *
 * @param url the service; without a URL, the service at `usual_url` or a new one
 * @param usual_url tests give another address
 */
export async function demo(
  url: string | undefined,
  apiKey: string | undefined,
  usual_url: string = DEFAULT_URL,
): Promise<void> {
  // When `head` in `convoke demo | head` has read enough, the demo must still remove its instances and its directory.
  goOnUnread();
  const interrupted = interruption();
  try {
    await show(await findService(url, apiKey, usual_url), interrupted);
  } catch (error) {
    // The egress policy of the running service may forbid pushes to this machine. Then the demo starts a service of its
    // own.
    const is_refused = error instanceof ConvokeError && error.code === 'webhook_url_not_allowed';
    if (!is_refused || url !== undefined) throw error;
    printStep('service', `another one, because ${usual_url} pushes nothing to this machine`);
    await show(await startOwn(), interrupted);
  }
}

/**
 * Rejects when the user ends the demo, also while it starts: the demo must still remove its directory. A second signal
 * ends the process.
 */
function interruption(): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  const interrupt = () => reject(new CommandFailure(EXIT.failed, 'the demo was interrupted'));
  process.once('SIGINT', interrupt).once('SIGTERM', interrupt).once('SIGHUP', interrupt);
  // Nobody may await this promise yet. Without this handler Node would then end the process.
  promise.catch(() => {});
  return promise;
}

/** Holds the conversation on a service, and closes the service if it is our own. */
async function show(service: Service, interrupted: Promise<never>): Promise<void> {
  const conversation = new ShownConversation(service.client);
  try {
    const where = service.is_own ? 'started for this demo, in a temporary directory' : 'already running';
    printStep('service', `${service.client.base_url} (${where})`);
    await conversation.hold(interrupted);
    const delivered = await conversation.delivered();
    printStep('done', `the service has ${delivered} of ${PUSHES} pushes on record as delivered`);
    if (delivered < PUSHES) throw new CommandFailure(EXIT.failed, 'not every push was delivered');
    print(`\nNext: \`${typed('serve')}\` runs the service, \`${typed('--help')}\` lists the other commands.`);
  } finally {
    await conversation.cleanUp();
    await service.close();
  }
}

class ShownConversation {
  readonly #client: ConvokeClient;
  readonly #conversation: Conversation;
  readonly #over = Promise.withResolvers<void>();
  #pushes = 0;

  constructor(client: ConvokeClient) {
    this.#client = client;
    // This promise may be rejected before `hold` awaits it. Without this handler Node would then end the process.
    // `hold` throws the error.
    this.#over.promise.catch(() => {});
    this.#conversation = new Conversation({
      service: client,
      observer: {
        joined: (agent_id, webhook_url) =>
          printStep('join', `${agent_id} joins ${this.#conversation.meeting_id} from ${webhook_url}`),
        onPush: (agent_id, push) => this.#onPush(agent_id, push),
        asked: (agent_id, question) => this.#ask(agent_id, question),
        says: (agent_id, how, content) => printStep('send', `${agent_id} ${how}: ${content}`),
        failed: (error) => this.#over.reject(error),
      },
      clock: systemClock(),
      turns: SHOWN_TURNS,
      pause_ms: 0,
      answers_max: 0,
    });
  }

  async hold(interrupted: Promise<never>): Promise<void> {
    interrupted.catch((error: unknown) => this.#over.reject(error));
    await this.#conversation.gather();
    const sent = await this.#conversation.open('you');
    printStep('send', `#${sent.seq} you to everybody: ${OPENING}`);

    const timer = setTimeout(() => this.#over.reject(new CommandFailure(EXIT.failed, describeTooSlow())), DEMO_MS_MAX);
    await this.#over.promise.finally(() => clearTimeout(timer));
  }

  #onPush(agent_id: string, push: Push): void {
    printStep('push', `${agent_id} receives ${described(push.seq, push.message)}`);
    printStep('', styled('dim', `${push.webhook_id}, signature verified, attempt ${push.attempt}, response 200`));
    this.#count();
  }

  #ask(agent_id: string, { seq, message }: Question): void {
    printStep('push', `${agent_id} receives ${described(seq, message)}`);
    printStep('', styled('dim', `a request of the runtime template, to the API of ${agent_id}`));
    this.#count();
  }

  #count(): void {
    this.#pushes += 1;
    if (this.#pushes === PUSHES) setImmediate(() => this.#over.resolve());
  }

  /**
   * Waits until no push is pending.
   *
   * @returns how many of the pushes were delivered
   */
  async delivered(): Promise<number> {
    for (let tries = 1; ; tries++) {
      const { data } = await this.#client.listDeliveries({ meeting_id: this.#conversation.meeting_id });
      const pending = data.some(({ state }) => state === 'pending');
      if (!pending || tries === SETTLED_TRIES_MAX) return data.filter(({ state }) => state === 'delivered').length;
      await sleep(SETTLED_PAUSE_MS);
    }
  }

  cleanUp(): Promise<void> {
    return this.#conversation.end();
  }
}

function described(seq: number | null, { from, content }: Record<string, unknown>): string {
  return plain(`#${seq} ${String(from)}: ${String(content)}`);
}

function describeTooSlow(): string {
  return (
    `the conversation did not end within ${DEMO_MS_MAX / 1000} s; ` +
    `\`${typed('deliveries')}\` shows the state of each push, if the service still runs`
  );
}

/** @returns the service at the URL; without a URL the service at the usual address, or a new one */
async function findService(url: string | undefined, apiKey: string | undefined, usual_url: string): Promise<Service> {
  const client = clientFor({ url: url ?? usual_url, ...(apiKey !== undefined && { apiKey }) });
  try {
    await client.listMeetings({ limit: 1 });
    return { client, is_own: false, close: async () => {} };
  } catch (error) {
    // The caller named a service, so no other service takes its place.
    if (!(error instanceof ConvokeError) || url !== undefined) throw error;
  }
  return startOwn();
}

/** Starts a service in a temporary directory, which is removed when it closes. */
async function startOwn(): Promise<Service> {
  const data = await mkdtemp(join(tmpdir(), 'convoke-demo-'));
  const { config } = readConfig({ flags: { port: '0', data } });
  const convoke = await createConvoke(config, { log: pino({ level: 'silent' }) }).catch(async (error: unknown) => {
    await rm(data, { recursive: true, force: true });
    throw error;
  });
  goPastProxy(convoke.url);
  return {
    client: clientFor({ url: convoke.url }),
    is_own: true,
    async close() {
      await convoke.close();
      await rm(data, { recursive: true, force: true });
    },
  };
}

function printStep(what: string, line: string): void {
  print(`${styled('cyan', what.padEnd(8))} ${line}`);
}
