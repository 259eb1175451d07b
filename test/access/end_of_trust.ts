/**
 * When a token is no longer valid, everything that depends on it ends, on every node. A token can end in several ways,
 * and several kinds of things depend on a token. Each way is tested with each kind of thing, on one node with SQLite
 * (end_of_trust.test.ts) and on two nodes with PostgreSQL (end_of_trust.slow.ts). With two nodes the token ends on one
 * node, and the things are on the other node. The control: the same things with another key, which stays valid, do not
 * end.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test, type TestContext } from 'node:test';
import type { ApiKey, ApiKeyWithToken, Instance, InviteWithLink, OpenSession, Page, Session } from '@convoke/sdk';
import type { Clock } from '../../src/delivery/clock.ts';
import { type EventStream, openStream } from '../support/event_stream.ts';
import { makeDatabase } from '../support/postgres.ts';
import { pullPath } from '../support/pulling.ts';
import { RawClient } from '../support/raw_client.ts';
import { rpc, RPC_HEADERS } from '../support/mcp.ts';
import { type Answer, instancePath, Service } from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { inTime, until } from '../support/wait.ts';

const HOUR_MS = 3_600_000;
/**
 * A client may take five seconds for the body of a request. A slow machine may need longer for a test that holds a body
 * back, so here these seconds are longer.
 */
const LONGER = 20;
const KEYS = '/api/v1/keys/';
const INVITES = '/api/v1/invites/';

interface House {
  /** The node on which the token ends. */
  here: Service;
  /** The node on which the things are; with one node it is `here`. */
  there: Service;
  clock: SetClock;
  database_url: string;
}

async function startHouse(engine: string): Promise<House> {
  const clock = new SetClock(LONGER);
  const on_sqlite = engine === 'SQLite';
  const database_url = on_sqlite ? '' : await makeDatabase();
  const settings = { database_url, ...(!on_sqlite && { encryption_key: randomBytes(32).toString('base64') }) };
  const here = new Service(settings, clock);
  await here.start();
  const there = on_sqlite ? here : new Service(settings, clock);
  if (there !== here) await there.start();
  return { here, there, clock, database_url };
}

async function closeHouse({ here, there }: House): Promise<void> {
  await Promise.all([here.close(), there.close()]);
}

/** Starts the nodes for one test, because other tests would see what the test changes. */
export async function startHouseFor(t: TestContext, engine: string): Promise<House> {
  const house = await startHouse(engine);
  t.after(() => closeHouse(house));
  return house;
}

/** Starts the nodes, with keys, once for all tests of a block. */
function useHouse(engine: string): () => House {
  let house: House;
  before(async () => {
    house = await startHouse(engine);
    await endOpenMode(house);
  });
  after(() => closeHouse(house));
  return () => house;
}

/** Makes the first key on one node, and waits until the other node knows the key. */
export async function endOpenMode({ here, there }: House): Promise<void> {
  const { token } = await here.endOpenMode();
  there.token = token;
  await until(
    'the end of open mode',
    () => ask(there, {}),
    ({ status }) => status === 401,
  );
}

async function taken(service: Service, token: string): Promise<void> {
  await until(
    'the key to be taken',
    () => ask(service, bearer(token)),
    ({ status }) => status === 200,
  );
}

export const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

function ask(service: Service, headers: Record<string, string>): Promise<Answer<{ code?: string }>> {
  // With a cookie, even an empty one, the test client does not add the token of the service.
  return service.request('GET', KEYS, { headers: { cookie: '', ...headers } });
}

/** How many keys the requests that were held back have made. */
async function madeOf(service: Service): Promise<number> {
  const { data } = (await service.get<Page<ApiKey>>(`${KEYS}?limit=500`)).body;
  return data.filter(({ name }) => name === 'held back').length;
}

const codeOf = ({ status, body }: Answer<{ code?: string }>): string => (status === 200 ? 'taken' : String(body.code));

/** A request for an admin key. The test holds back the end of its body. */
class HeldRequest {
  readonly #client: RawClient;
  readonly #rest: string;

  constructor(service: Service, headers: Record<string, string>) {
    const body = JSON.stringify({ scopes: ['admin'], name: 'held back' });
    const lines = Object.entries({ 'content-type': 'application/json', 'content-length': body.length, ...headers });
    const head = lines.map(([name, value]) => `${name}: ${value}\r\n`).join('');
    this.#client = new RawClient(service.url);
    this.#client.write(`POST ${KEYS} HTTP/1.1\r\nhost: ${new URL(service.url).host}\r\n${head}\r\n${body.slice(0, 1)}`);
    this.#rest = body.slice(1);
  }

  /** Sends the rest of the body. Returns the code of the problem, or `taken`. */
  async finish(): Promise<string> {
    this.#client.write(this.#rest);
    const [answer] = await this.#client.read();
    this.#client.destroy();
    return answer?.status === 201 ? 'taken' : String(answer?.code);
  }
}

/** Everything that can depend on the token of a key. */
export class Things {
  readonly #service: Service;
  readonly #headers: Record<string, Record<string, string>>;
  #held = new Map<string, HeldRequest>();
  #feeds = new Map<string, EventStream>();
  /** The secrets of invites that were made and not redeemed. */
  #invites = new Map<string, string>();
  /** The machines that wait for pushes. */
  #pulls = new Map<string, Promise<Answer<{ code?: string }>>>();
  /** The MCP clients that wait for a message. */
  #waits = new Map<string, Promise<Answer<{ code?: string }>>>();

  private constructor(service: Service, headers: Record<string, Record<string, string>>) {
    this.#service = service;
    this.#headers = headers;
  }

  static async of(t: TestContext, service: Service, by_key: Record<string, string>): Promise<Things> {
    const signed_in = await service.request<Session>('POST', '/api/v1/session/', {
      headers: { cookie: '', ...by_key },
    });
    assert.equal(signed_in.status, 201, signed_in.text);
    const things = await Things.with(t, service, { key: by_key, session: sessionHeaders(service, signed_in) });
    await things.#makeInvites();
    return things;
  }

  async #makeInvites(): Promise<void> {
    const body = { meeting_ids: ['m'], agent_ids: ['invited'], expires_in_s: 86_400 };
    for (const [kind, headers] of Object.entries(this.#headers)) {
      const made = await this.#service.request<InviteWithLink>('POST', INVITES, {
        headers: { cookie: '', ...headers },
        body,
      });
      assert.equal(made.status, 201, made.text);
      this.#invites.set(kind, made.body.link.split('/').at(-1) ?? '');
    }
  }

  /** The responses to machines that redeem the invites. */
  async redeemed(): Promise<Record<string, string>> {
    const found: Record<string, string> = {};
    for (const [kind, secret] of this.#invites) {
      const body = { secret };
      found[kind] = codeOf(await this.#service.request('POST', `${INVITES}redeem/`, { headers: { cookie: '' }, body }));
    }
    return found;
  }

  static async with(
    t: TestContext,
    service: Service,
    headers: Record<string, Record<string, string>>,
  ): Promise<Things> {
    const things = new Things(service, headers);
    for (const [kind, each] of Object.entries(headers)) {
      const stream = await openStream(`${service.url}/api/v1/events/`, each);
      assert.equal(stream.status, 200);
      t.after(() => stream.close());
      things.#feeds.set(kind, stream);
    }
    for (const [kind, each] of Object.entries(headers)) things.#held.set(kind, new HeldRequest(service, each));
    for (const [kind, each] of Object.entries(headers))
      things.#pulls.set(kind, (await waitForPush(service, each)).answer);
    // MCP accepts no session.
    for (const [kind, each] of Object.entries(headers).filter(([, by]) => !('cookie' in by)))
      things.#waits.set(kind, (await waitForMessage(service, each)).answer);
    return things;
  }

  /** The responses to a new request with each token. */
  async asked(): Promise<Record<string, string>> {
    const found: Record<string, string> = {};
    for (const [kind, headers] of Object.entries(this.#headers)) {
      found[kind] = codeOf(await ask(this.#service, headers));
    }
    return found;
  }

  /** Sends the rest of the requests that were held back, and returns their responses. */
  async finished(): Promise<Record<string, string>> {
    const found: Record<string, string> = {};
    for (const [kind, request] of this.#held) found[kind] = await request.finish();
    return found;
  }

  /** The reasons for which the feeds ended. */
  async feedsEnded(): Promise<Record<string, string>> {
    const found: Record<string, string> = {};
    for (const [kind, stream] of this.#feeds) {
      const [end] = await stream.some(1, ({ name }) => name === 'end');
      await until(
        'the end of the feed',
        () => stream.ended,
        (ended) => ended,
      );
      found[kind] = String(end?.data['code']);
    }
    return found;
  }

  /** The responses to the machines that waited. */
  pullsEnded(): Promise<Record<string, string>> {
    return codesOf(this.#pulls);
  }

  /** The responses to the MCP clients that waited. */
  waitsEnded(): Promise<Record<string, string>> {
    return codesOf(this.#waits);
  }

  get feedsGoOn(): boolean {
    return [...this.#feeds.values()].every((stream) => !stream.ended);
  }
}

async function codesOf(
  waits: ReadonlyMap<string, Promise<Answer<{ code?: string }>>>,
): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const [kind, wait] of waits) found[kind] = codeOf(await inTime('the end of the wait', wait));
  return found;
}

/** Starts a machine that waits for the pushes of a new instance. */
async function waitForPush(
  service: Service,
  by: Record<string, string>,
): Promise<{ answer: Promise<Answer<{ code?: string }>> }> {
  const instance_id = service.name('pulling');
  const registration = { instance_id, instance_name: 'n', agent_ids: [instance_id], transport: 'pull' };
  await service.post('/api/v1/instances/register/', registration);
  const pull = (wait_s: number) =>
    service.request<{ code?: string }>('POST', pullPath(instance_id), {
      body: { wait_s },
      headers: { cookie: '', ...by },
    });
  // A node that has just joined may still be taking over the delivery to this instance.
  await until(
    'a pull to be possible',
    () => pull(0),
    ({ status }) => status === 200,
  );
  const answer = pull(50);
  // The pulls of the control end with an error when their service closes.
  answer.catch(() => {});
  await until(
    'the pull to wait',
    () => service.request<Instance>('GET', instancePath(instance_id), { headers: { cookie: '', ...by } }),
    ({ body }) => (body.connected ?? null) !== null,
  );
  return { answer };
}

/** Starts an MCP client that joins a meeting as a new agent, and waits there for a message. */
async function waitForMessage(
  service: Service,
  by: Record<string, string>,
): Promise<{ answer: Promise<Answer<{ code?: string }>> }> {
  const agent_id = service.name('waiting');
  const call = (name: string, args: object) =>
    service.request<{ code?: string }>('POST', '/mcp', {
      body: rpc('tools/call', { name, arguments: { agent_id, ...args } }),
      headers: { cookie: '', ...RPC_HEADERS, ...by },
    });
  const joined = await call('join_meeting', { meeting_id: 'm' });
  assert.equal(joined.status, 200, joined.text);
  // A node that has just joined may still be taking over the delivery to this instance.
  await until(
    'a wait to be possible',
    () => call('wait_for_message', { wait_s: 0 }),
    ({ text }) => !text.includes('"isError":true'),
  );
  const answer = call('wait_for_message', { wait_s: 50 });
  // The waits of the control end with an error when their service closes.
  answer.catch(() => {});
  await until(
    'the wait to begin',
    () => service.request<Instance>('GET', instancePath(agent_id), { headers: { cookie: '', ...by } }),
    ({ body }) => (body.connected ?? null) !== null,
  );
  return { answer };
}

function sessionHeaders(service: Service, { headers, body }: Answer<Session>): Record<string, string> {
  const cookie = String(headers['set-cookie']?.[0]).split(';')[0] as string;
  return { cookie, origin: service.url, 'convoke-csrf': body.csrf_token ?? '' };
}

interface End {
  name: string;
  /** When the key on which the things depend expires; absent when it does not expire. */
  key?: (clock: Clock) => { expires_at: string };
  end: (house: House, key: ApiKeyWithToken) => Promise<unknown>;
  by_key: string;
  by_session: string;
}

const rotate = (house: House, { key_id }: ApiKey, overlap_seconds: number) =>
  house.here.post(`${KEYS}${key_id}/rotate/`, { overlap_seconds });

const ENDS: End[] = [
  {
    name: 'a key is revoked',
    end: ({ here }, { key_id }) => here.request('DELETE', `${KEYS}${key_id}/`),
    by_key: 'api_key_revoked',
    by_session: 'session_ended',
  },
  {
    name: 'a key is rotated without overlap',
    end: (house, key) => rotate(house, key, 0),
    by_key: 'api_key_unknown',
    by_session: 'session_ended',
  },
  {
    name: 'a key is rotated without overlap, in the overlap of an earlier rotation',
    end: async (house, key) => {
      await rotate(house, key, 3600);
      await rotate(house, key, 0);
    },
    by_key: 'api_key_unknown',
    by_session: 'session_ended',
  },
  {
    name: 'the overlap of a rotation ends, and not before, though the key was rotated again',
    end: async (house, key) => {
      await rotate(house, key, 3600);
      await rotate(house, key, 7200);
      assert.equal(codeOf(await ask(house.there, bearer(key.token))), 'taken', 'while it lasts');
      house.clock.step(HOUR_MS + 1);
    },
    by_key: 'api_key_unknown',
    by_session: 'session_ended',
  },
  {
    name: 'the overlap of a rotation ends',
    end: async (house, key) => {
      await rotate(house, key, 3600);
      assert.equal(codeOf(await ask(house.there, bearer(key.token))), 'taken', 'while it lasts');
      house.clock.step(HOUR_MS + 1);
    },
    by_key: 'api_key_unknown',
    by_session: 'session_ended',
  },
  {
    name: 'a key expires',
    key: (clock) => ({ expires_at: new Date(clock.wall() + HOUR_MS).toISOString() }),
    end: async ({ clock }) => clock.step(HOUR_MS + 1),
    by_key: 'api_key_expired',
    by_session: 'session_ended',
  },
];

/** Makes the tests of every end of a token. */
export function endsWithItsToken(engine: 'SQLite' | 'PostgreSQL'): void {
  describe(`on ${engine}, everything that stands on a token ends when`, () => {
    const houseOfKeys = useHouse(engine);

    for (const { name, key: limits, end, by_key, by_session } of ENDS) {
      test(name, async (t) => {
        const house = houseOfKeys();
        const { here, there, clock } = house;
        const previous = await madeOf(here);
        const key = await here.createKey({ scopes: ['admin'], name: 'leaked', ...limits?.(clock) });
        const other = await here.createKey({ scopes: ['admin'], name: 'control' });
        for (const { token } of [key, other]) await taken(there, token);
        const control = await Things.of(t, there, bearer(other.token));
        const things = await Things.of(t, there, bearer(key.token));
        assert.deepEqual(await things.asked(), { key: 'taken', session: 'taken' });

        await end(house, key);
        await until(
          'the end',
          () => things.asked(),
          (asked) => asked['key'] !== 'taken' && asked['session'] !== 'taken',
        );
        assert.deepEqual(await things.asked(), { key: by_key, session: by_session });
        const finished = await things.finished();
        assert.equal(finished['key'], by_key);
        // A session that ended with its key gets one of two codes, because either this node or the store may notice the
        // end first.
        assert.ok([by_key, by_session].includes(String(finished['session'])), finished['session']);
        const ended = await things.feedsEnded();
        assert.equal(ended['key'], by_key);
        assert.ok([by_key, by_session].includes(String(ended['session'])), ended['session']);

        assert.deepEqual(await things.waitsEnded(), { key: by_key });
        const pulls = await things.pullsEnded();
        assert.equal(pulls['key'], by_key);
        assert.ok([by_key, by_session].includes(String(pulls['session'])), pulls['session']);
        assert.deepEqual(await things.redeemed(), { key: 'invite_ended', session: 'invite_ended' });

        // The control: the things of the other key go on, and the refused changes were not made.
        assert.deepEqual(await control.asked(), { key: 'taken', session: 'taken' });
        assert.ok(control.feedsGoOn);
        assert.deepEqual(await control.finished(), { key: 'taken', session: 'taken' });
        assert.deepEqual(await control.redeemed(), { key: 'taken', session: 'taken' });
        assert.equal((await madeOf(here)) - previous, 2);
        const { data } = (await here.get<Page<OpenSession>>('/api/v1/sessions/')).body;
        const of_these = data.map(({ key_id }) => key_id).filter((id) => id === key.key_id || id === other.key_id);
        assert.deepEqual(of_these, [other.key_id]);
      });
    }

    test('the first key is made: open access ends, and so do links that were made before', async (t) => {
      const house = await startHouseFor(t, engine);
      const { here, there } = house;
      const link = new URL(there.signInLink()).hash.slice('#sign-in='.length);
      const things = await Things.with(t, there, { nobody: {} });
      assert.deepEqual(await things.asked(), { nobody: 'taken' });
      await here.endOpenMode();
      await until(
        'the end of open mode',
        () => things.asked(),
        (asked) => asked['nobody'] !== 'taken',
      );
      assert.deepEqual(await things.finished(), { nobody: 'api_key_missing' });
      assert.deepEqual(await things.feedsEnded(), { nobody: 'api_key_missing' });
      assert.deepEqual(await things.waitsEnded(), { nobody: 'api_key_missing' });
      const use = await there.request<{ code: string }>('POST', '/api/v1/session/link/', {
        body: { token: link },
        headers: { cookie: '' },
      });
      assert.equal(use.body.code, 'sign_in_link_not_valid');
      assert.equal((await here.get<Page<ApiKey>>(KEYS)).body.data.length, 1);
    });

    for (const by of ['an admin ends it', 'its holder signs out'] as const) {
      test(`${by}, and it is a session`, async (t) => {
        const { here, there } = houseOfKeys();
        const { token, key_id } = await here.createKey({ scopes: ['admin'] });
        await taken(there, token);
        const begin = async () =>
          sessionHeaders(
            there,
            await there.request('POST', '/api/v1/session/', { headers: { cookie: '', ...bearer(token) } }),
          );
        const idsOfKey = async (): Promise<string[]> => {
          const { data } = (await here.get<Page<OpenSession>>('/api/v1/sessions/')).body;
          return data.filter((each) => each.key_id === key_id).map(({ session_id }) => session_id);
        };
        const control = await Things.with(t, there, { session: await begin() });
        // Not by the order of the list: sessions that begin in the same millisecond are in no order.
        const of_control = await idsOfKey();
        const headers = await begin();
        const things = await Things.with(t, there, { session: headers });
        const [session_id, ...others] = (await idsOfKey()).filter((id) => !of_control.includes(id));
        assert.deepEqual([of_control.length, others.length], [1, 0]);
        const ended =
          by === 'an admin ends it'
            ? await here.request('DELETE', `/api/v1/sessions/${session_id}/`)
            : await here.request('DELETE', '/api/v1/session/', { headers: { ...headers, origin: here.url } });
        assert.equal(ended.status, 204, ended.text);
        assert.deepEqual(await things.finished(), { session: 'session_ended' });
        assert.deepEqual(await things.asked(), { session: 'session_ended' });
        assert.deepEqual(await things.feedsEnded(), { session: 'session_ended' });
        assert.deepEqual(await things.pullsEnded(), { session: 'session_ended' });
        assert.deepEqual(await control.asked(), { session: 'taken' });
        assert.deepEqual(await control.finished(), { session: 'taken' });
        assert.ok(control.feedsGoOn);
      });
    }
  });

  describe(`on ${engine}, a session by a sign-in link`, () => {
    const houseOfKeys = useHouse(engine);

    async function signInByLink(service: Service): Promise<Record<string, string>> {
      const token = new URL(service.signInLink()).hash.slice('#sign-in='.length);
      const answer = await service.request<Session>('POST', '/api/v1/session/link/', {
        body: { token },
        headers: { cookie: '' },
      });
      assert.equal(answer.status, 201, answer.text);
      return sessionHeaders(service, answer);
    }

    test('is listed and ended by an admin, and is not touched by the end of any key', async (t) => {
      const { here, there } = houseOfKeys();
      const { key_id } = await here.createKey({ scopes: ['admin'] });
      const things = await Things.with(t, there, { link: await signInByLink(there) });
      await here.request('DELETE', `${KEYS}${key_id}/`);
      assert.deepEqual(await things.asked(), { link: 'taken' });
      const [session] = (await here.get<Page<OpenSession>>('/api/v1/sessions/')).body.data;
      assert.equal(session?.key_id, null);
      await here.request('DELETE', `/api/v1/sessions/${session.session_id}/`);
      assert.deepEqual(await things.finished(), { link: 'session_ended' });
      assert.deepEqual(await things.asked(), { link: 'session_ended' });
      assert.deepEqual(await things.feedsEnded(), { link: 'session_ended' });
    });

    test('ends with the process that printed the link, on the other nodes as well', async (t) => {
      const house = await startHouseFor(t, engine);
      await endOpenMode(house);
      const { here, there } = house;
      const key = await here.createKey({ scopes: ['admin'] });
      await taken(there, key.token);
      const begun = await there.request<Session>('POST', '/api/v1/session/', {
        headers: { cookie: '', ...bearer(key.token) },
      });
      const by_link = await signInByLink(there);
      // With two nodes these things are on `here`, while the session began on `there`.
      const listening = await Things.with(t, here, { link: { ...by_link, origin: here.url } });
      await there.restart({});
      if (here !== there) assert.deepEqual(await listening.feedsEnded(), { link: 'session_ended' });
      for (const service of [here, there]) {
        assert.equal(codeOf(await ask(service, { ...by_link, origin: service.url })), 'session_ended');
        // The control: a feed of a key continues.
        const by_key = { ...sessionHeaders(service, begun), origin: service.url };
        assert.equal(codeOf(await ask(service, by_key)), 'taken');
        const { data } = (await service.get<Page<OpenSession>>('/api/v1/sessions/')).body;
        assert.deepEqual(
          data.map(({ key_id }) => key_id),
          [key.key_id],
        );
      }
    });

    test('ends by itself after half a day', async (t) => {
      const house = houseOfKeys();
      const things = await Things.with(t, house.there, { link: await signInByLink(house.there) });
      house.clock.step(12 * HOUR_MS);
      assert.deepEqual(await things.finished(), { link: 'session_ended' });
      assert.deepEqual(await things.asked(), { link: 'session_ended' });
      assert.deepEqual(await things.feedsEnded(), { link: 'session_ended' });
    });
  });
}
