/** A real Convoke in this process, with a free port and a new data directory. Its log is kept in memory. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, type IncomingHttpHeaders, request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, type TestContext } from 'node:test';
import type {
  ApiKeyWithToken,
  CreateKeyInput,
  Delivery,
  DeliveryWithAttempts,
  Instance,
  Membership,
  Page,
  ProblemDetails,
  RegisteredInstance,
  RegisterInput,
  SentMessage,
  ServiceNode,
} from '@convoke/sdk';
import { pino } from 'pino';
import { readConfig } from '../../src/config/read_config.ts';
import type { SettingName } from '../../src/config/settings.ts';
import type { TraceSettings } from '../../src/config/traces.ts';
import type { Clock } from '../../src/delivery/clock.ts';
import { type Convoke, createConvoke } from '../../src/convoke.ts';
import { PARTITIONS } from '../../src/domain/partition.ts';
import { makeDatabase } from './postgres.ts';
import { type Behaviour, type Receiver, startReceiver } from './receiver.ts';
import { until } from './wait.ts';

/** `CONVOKE_TEST_STORE=postgres npm test` runs the service on PostgreSQL in every test that does not choose a store. */
const ON_POSTGRES = process.env['CONVOKE_TEST_STORE'] === 'postgres';

/** The settings of a service on SQLite, for tests of what only a data file has. */
export const ON_A_FILE = { database_url: '' };

/** PostgreSQL has its own tools for backups, and its data key is a setting. */
const REFUSED_ON_POSTGRES: Record<string, string> = {
  beginBackup: 'backup_not_made_here',
  reencrypt: 'encryption_key_given',
};

/** The code with which the store of the tests refuses an operation to everybody; null when it does not. */
export function refusalByStore(operation_id: string): string | null {
  return ON_POSTGRES ? (REFUSED_ON_POSTGRES[operation_id] ?? null) : null;
}

export interface Answer<T> {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  /** The text parsed as JSON; undefined when it is not JSON. */
  body: T;
}

export interface RequestOptions {
  /** An object is sent as JSON; text and bytes are sent as they are. */
  body?: object | string | Buffer;
  headers?: Record<string, string>;
}

export type LogLine = Record<string, unknown> & { msg: string };

/** An instance in a meeting, and the receiver of its pushes. */
export interface Member {
  instance_id: string;
  webhook_secret: string;
  receiver: Receiver;
}

export interface MemberOptions {
  agent_ids?: string[];
  behaviour?: Behaviour;
  /** Further fields of the registration. */
  registration?: Partial<RegisterInput>;
}

export class Service {
  readonly log: LogLine[] = [];
  /** The token of requests that have no own token or cookie. */
  token: string | null = null;
  #settings: Partial<Record<SettingName, string>>;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 64 });
  #data = '';
  #database_url = '';
  #convoke: Convoke | null = null;
  #names = 0;

  readonly #clock: Clock | undefined;
  readonly #traces: TraceSettings | null;

  /**
   * @param clock when absent, the clock of the system
   * @param traces how to send traces; null to send none
   */
  constructor(settings: Partial<Record<SettingName, string>> = {}, clock?: Clock, traces: TraceSettings | null = null) {
    this.#settings = settings;
    this.#clock = clock;
    this.#traces = traces;
  }

  get url(): string {
    assert.ok(this.#convoke !== null, 'the service is not started');
    return this.#convoke.url;
  }

  signInLink(): string {
    assert.ok(this.#convoke !== null, 'the service is not started');
    return this.#convoke.signInLink();
  }

  async start(): Promise<void> {
    this.#data ||= await mkdtemp(join(tmpdir(), 'convoke-test-'));
    if (ON_POSTGRES) this.#database_url ||= await makeDatabase();
    const database_url = this.#database_url;
    const { config } = readConfig({ flags: { port: '0', data: this.#data, database_url, ...this.#settings } });
    const write = (line: string): void => void this.log.push(JSON.parse(line) as LogLine);
    const log = pino({ level: 'debug', base: null }, { write });
    const clock = this.#clock !== undefined && { clock: this.#clock };
    this.#convoke = await createConvoke(config, { log, traces: this.#traces, ...clock });
  }

  /** Stops the service, and keeps its data. `restart` starts the service again. */
  async stop(): Promise<void> {
    const convoke = this.#convoke;
    this.#convoke = null;
    await convoke?.close();
  }

  /**
   * Restarts the service on the same data, with these changed settings and an empty log; on another port, unless a setting
   * has the port.
   */
  async restart(changed: Partial<Record<SettingName, string>>): Promise<void> {
    await this.stop();
    this.#settings = { ...this.#settings, ...changed };
    this.log.length = 0;
    await this.start();
  }

  /** Stops the service, and removes its data. A second call does nothing. */
  async close(drain_ms?: number): Promise<void> {
    const convoke = this.#convoke;
    this.#convoke = null;
    await convoke?.close(drain_ms);
    this.#agent.destroy();
    await rm(this.#data, { recursive: true, force: true });
  }

  /** Waits until this node, the only one, delivers. With PostgreSQL a node takes its partitions just after its start. */
  async untilItDelivers(): Promise<void> {
    await until(
      'all partitions',
      () => this.get<{ data: ServiceNode[] }>('/api/v1/nodes/'),
      ({ body }) => body.data[0]?.partitions === PARTITIONS,
    );
  }

  /** An id that no other test uses. */
  name(prefix: string): string {
    return `${prefix}-${++this.#names}`;
  }

  /** Sends the path exactly as given. */
  request<T = never>(method: string, path: string, { body, headers = {} }: RequestOptions = {}): Promise<Answer<T>> {
    const bytes = body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
    const all_headers: Record<string, string> = {
      ...(bytes === undefined ? {} : { 'content-type': 'application/json' }),
      ...(bytes === undefined ? {} : { 'content-length': String(Buffer.byteLength(bytes)) }),
      // A page sends its cookie, and no key.
      ...(this.token === null || 'cookie' in headers ? {} : { authorization: `Bearer ${this.token}` }),
      ...headers,
    };
    const { hostname, port } = new URL(this.url);
    return new Promise((resolve, reject) => {
      const options = { agent: this.#agent, hostname, port, method, path, headers: all_headers };
      const request = httpRequest(options, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          resolve({ status: response.statusCode ?? 0, headers: response.headers, text, body: parsed(text) as T });
        });
      });
      request.on('error', reject);
      request.end(bytes);
    });
  }

  get<T>(path: string): Promise<Answer<T>> {
    return this.request<T>('GET', path);
  }

  post<T>(path: string, body?: object | string, headers: Record<string, string> = {}): Promise<Answer<T>> {
    return this.request<T>('POST', path, body === undefined ? { headers } : { body, headers });
  }

  /** Makes a key, which must succeed. */
  async createKey(input: CreateKeyInput): Promise<ApiKeyWithToken> {
    const answer = await this.post<ApiKeyWithToken>('/api/v1/keys/', input);
    assert.equal(answer.status, 201, answer.text);
    return answer.body;
  }

  /** Makes the first key, an admin key, and uses it for later requests. */
  async endOpenMode(): Promise<ApiKeyWithToken> {
    const key = await this.createKey({ scopes: ['admin'], name: 'the first' });
    this.token = key.token;
    return key;
  }

  /** Registers an instance, which must succeed. */
  async register(input: Partial<RegisterInput> & { webhook_url: string }): Promise<RegisteredInstance> {
    const body = { instance_id: this.name('instance'), instance_name: 'A machine', agent_ids: ['a'], ...input };
    const { status, text, body: instance } = await this.post<RegisteredInstance>('/api/v1/instances/register/', body);
    assert.ok(status === 201 || status === 200, text);
    return instance;
  }

  async join(meeting_id: string, instance_id: string, agent_ids: string[]): Promise<Membership> {
    const answer = await this.post<Membership>('/api/v1/instances/join-meeting/', {
      instance_id,
      meeting_id,
      agent_ids,
    });
    assert.ok(answer.status === 201 || answer.status === 200, answer.text);
    return answer.body;
  }

  async leave(meeting_id: string, instance_id: string): Promise<void> {
    const answer = await this.post('/api/v1/instances/leave-meeting/', { instance_id, meeting_id });
    assert.equal(answer.status, 200, answer.text);
  }

  /** Registers a new instance with a new receiver, and lets the instance join a meeting. */
  async member(t: TestContext, meeting_id: string, options: MemberOptions = {}): Promise<Member> {
    const { agent_ids = ['a'], behaviour, registration } = options;
    const receiver = await startReceiver(t, behaviour);
    const registered = await this.register({
      agent_ids,
      ...registration,
      webhook_url: registration?.webhook_url ?? receiver.url,
    });
    const { instance_id, webhook_secret = registration?.webhook_secret ?? '' } = registered;
    await this.join(meeting_id, instance_id, agent_ids);
    return { instance_id, webhook_secret, receiver };
  }

  /** Sends a message that must be accepted. */
  async send(meeting_id: string, message: object, target_agents?: string[]): Promise<SentMessage> {
    const body = target_agents === undefined ? { message } : { message, target_agents };
    const answer = await this.post<SentMessage>(messagesPath(meeting_id), body);
    assert.equal(answer.status, 201, answer.text);
    return answer.body;
  }

  /** Sends a message by its JSON text. */
  async sendText(meeting_id: string, message: string): Promise<SentMessage> {
    const answer = await this.post<SentMessage>(messagesPath(meeting_id), `{"message":${message}}`);
    assert.equal(answer.status, 201, answer.text);
    return answer.body;
  }

  async instance(instance_id: string): Promise<Instance> {
    const answer = await this.get<Instance>(instancePath(instance_id));
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  }

  async patch(instance_id: string, changes: object): Promise<Instance> {
    const answer = await this.request<Instance>('PATCH', instancePath(instance_id), { body: changes });
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  }

  async heartbeat(instance_id: string): Promise<Instance> {
    const answer = await this.post<Instance>(`${instancePath(instance_id)}heartbeat/`);
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  }

  async delivery(delivery_id: string): Promise<DeliveryWithAttempts> {
    const answer = await this.get<DeliveryWithAttempts>(`/api/v1/deliveries/${delivery_id}/`);
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  }

  /** The deliveries of a message, in the order of their instances. */
  async deliveriesOf({ message_id }: { message_id: string }): Promise<Delivery[]> {
    const answer = await this.get<Page<Delivery>>(`/api/v1/deliveries/?message_id=${message_id}&limit=500`);
    assert.equal(answer.status, 200, answer.text);
    return answer.body.data.toSorted((a, b) => (a.instance_id < b.instance_id ? -1 : 1));
  }

  /** Waits until the only delivery of a message satisfies a condition. */
  async deliveryOf(
    sent: { message_id: string },
    what: string,
    holds: (delivery: Delivery) => boolean,
  ): Promise<DeliveryWithAttempts> {
    const one = (deliveries: Delivery[]): Delivery => {
      assert.equal(deliveries.length, 1);
      return deliveries[0] as Delivery;
    };
    const found = await until(
      `a delivery that is ${what}`,
      () => this.deliveriesOf(sent),
      (deliveries) => holds(one(deliveries)),
    );
    return this.delivery(one(found).delivery_id);
  }

  /** Waits until the only delivery of a message is settled. */
  settled(sent: { message_id: string }): Promise<DeliveryWithAttempts> {
    return this.deliveryOf(sent, 'settled', ({ state }) => state !== 'pending');
  }

  /** Waits until the only delivery of a message has had this many attempts. */
  attempted(sent: { message_id: string }, attempts = 1): Promise<DeliveryWithAttempts> {
    return this.deliveryOf(sent, `attempted ${attempts} times`, (delivery) => delivery.attempt_count >= attempts);
  }

  /** The log lines about a delivery. */
  logOf({ delivery_id }: { delivery_id: string }): LogLine[] {
    return this.log.filter((line) => line['delivery_id'] === delivery_id);
  }
}

/** One service for all tests of a file. Each test uses new instances and meetings. */
export function useService(settings: Partial<Record<SettingName, string>> = {}, clock?: Clock): Service {
  const service = new Service(settings, clock);
  before(() => service.start());
  after(() => service.close());
  return service;
}

/** A service for one test, for tests that look at all of its data. */
export async function startService(
  t: TestContext,
  settings: Partial<Record<SettingName, string>> = {},
  clock?: Clock,
): Promise<Service> {
  const service = new Service(settings, clock);
  await service.start();
  t.after(() => service.close());
  return service;
}

export const instancePath = (instance_id: string): string => `/api/v1/instances/${encodeURIComponent(instance_id)}/`;

export const messagesPath = (meeting_id: string): string =>
  `/api/v1/meetings/${encodeURIComponent(meeting_id)}/messages/`;

export const membersPath = (meeting_id: string): string =>
  `/api/v1/meetings/${encodeURIComponent(meeting_id)}/instances/`;

/** Asserts that a response is a problem (RFC 9457) with this code and the status of the code. */
export function assertProblem(answer: Answer<unknown>, status: number, code: string): ProblemDetails {
  assert.equal(answer.status, status, answer.text);
  assert.match(String(answer.headers['content-type']), /^application\/problem\+json\b/);
  const problem = answer.body as ProblemDetails;
  assert.equal(problem.code, code);
  assert.equal(problem.status, status);
  for (const field of [problem.type, problem.title, problem.detail]) assert.equal(typeof field, 'string');
  assert.notEqual(problem.detail, '');
  return problem;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
