/**
 * Two agents of different runtimes hold a conversation on this machine. They use only public parts of Convoke. Ben is a
 * webhook receiver of the SDK, and answers by sending a message to the meeting. Ada has an API of her own and knows
 * nothing of Convoke: a template writes the requests, and her response becomes a message of the meeting. `convoke demo`
 * shows the conversation on a terminal, the demo of the service shows it on the pages.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { createReceiver, type Push } from '@convoke/sdk';
import { toNodeListener } from '@convoke/sdk/node';
import type { Clock, Timer } from '../delivery/clock.ts';
import { http } from '../node_http.ts';
import { wallNow } from '../wall_clock.ts';
import { AGENTS, answerTo, OPENING, type AgentName } from './script.ts';

/** The address on which the receivers of the agents listen. */
export const DEMO_HOST = '127.0.0.1';

const SECRET_BYTES = 32;
const NAME_BYTES = 3;
/**
 * How many names are tried until this node delivers to one of them. A node that holds one of 64 partitions delivers to
 * one name in 64.
 */
const NAMES_TRIED_MAX = 2_000;

/** An agent as it is registered. */
export interface DemoRegistration {
  instance_id: string;
  instance_name: string;
  agent_ids: string[];
  webhook_url: string;
  webhook_secret: string;
  runtime?: 'template';
  runtime_options?: Record<string, unknown>;
}

/** A message that an agent is asked about; also the body of a request to the API of Ada. */
export interface Question {
  seq: number;
  message: Record<string, unknown>;
}

/** A message of an agent. */
interface Said {
  from: string;
  content: string;
  turn?: number;
  created_at: string;
}

/** The API of Ada as a template of Convoke: the request, and the place of the answer in the response. */
const API = {
  runtime: 'template',
  runtime_options: { path: '/questions', body: { seq: '{{seq}}', message: '{{message}}' }, reply: '/answer' },
} as const;

/** The targets of a message, its sender, and the message that it answers. */
export interface DemoSend {
  target_agents?: string[];
  from_agent?: string;
  in_reply_to?: string;
}

/** The calls that the agents make on the service: a part of ConvokeClient. */
export interface DemoService {
  register(registration: DemoRegistration): Promise<unknown>;
  joinMeeting(membership: { instance_id: string; meeting_id: string; agent_ids: string[] }): Promise<unknown>;
  sendMessage(meeting_id: string, message: object, options?: DemoSend): Promise<{ seq: number }>;
  deleteInstance(instance_id: string): Promise<unknown>;
}

/** Gets reports of the conversation. */
export interface DemoObserver {
  joined(agent_id: string, webhook_url: string): void;
  /** A push whose signature was verified. */
  onPush(agent_id: string, push: Push): void;
  /** A request to the API of an agent. */
  asked(agent_id: string, question: Question): void;
  /** @param how names the agent that gets the message, or says that the message is in a response */
  says(agent_id: string, how: string, content: string): void;
  /** The conversation cannot continue. */
  failed(error: unknown): void;
}

export interface ConversationOptions {
  service: DemoService;
  observer: DemoObserver;
  clock: Pick<Clock, 'after'>;
  turns: readonly string[];
  /** How long an agent thinks before it says something. */
  pause_ms: number;
  /** How many messages of others the agents answer. */
  answers_max: number;
  /** Whether this node delivers to an instance: another node would not reach 127.0.0.1. When absent: always. */
  isPushedFromHere?: (instance_id: string) => boolean;
}

interface Agent {
  instance_id: string;
  server: Server;
}

export class Conversation {
  readonly meeting_id = `demo-${randomBytes(NAME_BYTES).toString('hex')}`;
  readonly #options: ConversationOptions;
  readonly #agents: Agent[] = [];
  readonly #timers = new Set<Timer>();
  readonly #answered = new Set<number>();
  #turn = 0;
  #is_thinking = false;

  constructor(options: ConversationOptions) {
    this.#options = options;
  }

  get instance_ids(): string[] {
    return this.#agents.map(({ instance_id }) => instance_id);
  }

  /** How many turns were taken so far. */
  get turns(): number {
    return this.#turn;
  }

  /** Starts the agents, registers them, and lets them join. */
  async gather(): Promise<void> {
    for (const agent_id of AGENTS) await this.#takePart(agent_id);
  }

  /** Sends the first message, which gives the agents their topic. */
  open(from: string): Promise<{ seq: number }> {
    return this.#options.service.sendMessage(this.meeting_id, messageFrom(from, OPENING, 0));
  }

  /**
   * Ends the conversation and removes its instances. The messages stay until their retention ends, as all messages do.
   */
  async end(onError: (error: unknown) => void = () => {}): Promise<void> {
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
    for (const { instance_id, server } of this.#agents) {
      await this.#options.service.deleteInstance(instance_id).catch(onError);
      server.close();
      server.closeAllConnections();
    }
  }

  /** Starts an agent, registers it as an instance, and joins the meeting. */
  async #takePart(agent_id: AgentName): Promise<void> {
    const { service, observer, isPushedFromHere = () => true } = this.#options;
    const { meeting_id } = this;
    const instance_id = instanceIdOf(`${meeting_id}-${agent_id}`, isPushedFromHere);
    const webhook_secret = `whsec_${randomBytes(SECRET_BYTES).toString('base64')}`;
    const server = agent_id === 'ada' ? this.#apiOf(agent_id) : this.#receiverOf(agent_id, webhook_secret);
    server.listen(0, DEMO_HOST);
    await once(server, 'listening');
    this.#agents.push({ instance_id, server });

    const url = `http://${DEMO_HOST}:${(server.address() as AddressInfo).port}`;
    const webhook_url = agent_id === 'ada' ? url : `${url}/convoke`;
    const agent_ids = [agent_id];
    const instance_name = `${agent_id} of the demo`;
    const shape = agent_id === 'ada' ? API : {};
    await service.register({ instance_id, instance_name, agent_ids, webhook_url, webhook_secret, ...shape });
    await service.joinMeeting({ instance_id, meeting_id, agent_ids });
    observer.joined(agent_id, webhook_url);
  }

  /** Ben answers by sending. */
  #receiverOf(agent_id: AgentName, secret: string): Server {
    const { observer } = this.#options;
    const onPush = (push: Push): void => {
      observer.onPush(agent_id, push);
      const { seq, message } = push;
      if (seq === null) return;
      this.#answer(agent_id, { seq, message }, (said) => {
        const to = typeof said.turn === 'number' ? { target_agents: [this.#next] } : {};
        observer.says(agent_id, `to ${this.#next}`, said.content);
        this.#send(said, { ...answerBy(agent_id, push), ...to });
      });
    };
    const receive = createReceiver({ secret, onPush });
    return http.createServer(toNodeListener((request) => this.#receive(agent_id, request, receive)));
  }

  async #receive(
    agent_id: AgentName,
    request: Request,
    receive: (request: Request) => Promise<Response>,
  ): Promise<Response> {
    const response = await receive(request);
    if (response.status !== 200) {
      const reason = (await response.clone().text()).trim();
      this.#options.observer.failed(new Error(`${agent_id} answered ${response.status}: ${reason}`));
    }
    return response;
  }

  /** Ada answers in the response. */
  #apiOf(agent_id: AgentName): Server {
    const { observer } = this.#options;
    return http.createServer((request, response) => {
      const respond = (answer: Said | null): void => {
        response.setHeader('content-type', 'application/json');
        response.end(JSON.stringify({ answer }));
      };
      json(request)
        .then((body) => {
          const question = body as Question;
          observer.asked(agent_id, question);
          const has_answer = this.#answer(agent_id, question, (said) => {
            observer.says(agent_id, 'in the response', said.content);
            respond(said);
          });
          if (!has_answer) respond(null);
        })
        .catch((error: Error) => response.destroy(error));
    });
  }

  get #next(): AgentName {
    return AGENTS[this.#turn % AGENTS.length] as AgentName;
  }

  /**
   * Returns whether an agent answers a message. If so, calls `say` with the answer later. Each turn answers the
   * previous turn, so that the loop guard counts the turns and stops the agents after a while.
   */
  #answer(agent_id: AgentName, { seq, message }: Question, say: (said: Said) => void): boolean {
    const { turns, answers_max } = this.#options;
    const { from, turn } = message;
    if (typeof turn === 'number') {
      const content = turns[this.#turn];
      if (turn !== this.#turn || agent_id !== this.#next || this.#is_thinking || content === undefined) return false;
      this.#is_thinking = true;
      this.#think(() => {
        this.#is_thinking = false;
        this.#turn += 1;
        say(messageFrom(agent_id, content, this.#turn));
      });
      return true;
    }
    // When several agents get the message of a person, the first one answers.
    const is_agent = AGENTS.some((agent) => agent === from);
    if (is_agent || this.#answered.has(seq) || this.#answered.size >= answers_max) return false;
    this.#answered.add(seq);
    const content = answerTo(agent_id, message['content'], this.#answered.size === answers_max);
    this.#think(() => say(messageFrom(agent_id, content)));
    return true;
  }

  /**
   * Waits as long as an agent thinks. Convoke waits 5 seconds for the response of a webhook, and some agents think
   * longer, so Ben responds first and thinks then. For the response of Ada, Convoke waits two minutes.
   */
  #think(then: () => void): void {
    const { clock, pause_ms } = this.#options;
    const timer = clock.after(pause_ms, () => {
      this.#timers.delete(timer);
      then();
    });
    this.#timers.add(timer);
  }

  #send(message: object, options: DemoSend): void {
    const { service, observer } = this.#options;
    service.sendMessage(this.meeting_id, message, options).catch((error: unknown) => observer.failed(error));
  }
}

function answerBy(from_agent: string, { message_id }: Push): DemoSend {
  return { from_agent, ...(message_id !== null && { in_reply_to: message_id }) };
}

/** The first name that this node delivers to; if there is none, the first name. */
function instanceIdOf(name: string, isPushedFromHere: (instance_id: string) => boolean): string {
  for (let number = 2, id = name; number <= NAMES_TRIED_MAX; number++) {
    if (isPushedFromHere(id)) return id;
    id = `${name}-${number}`;
  }
  return name;
}

/** @param turn the number of the message in the talk of the agents; answers to others have none */
function messageFrom(from: string, content: string, turn?: number): Said {
  return { from, content, ...(turn === undefined ? {} : { turn }), created_at: new Date(wallNow()).toISOString() };
}
