/**
 * Every route that changes something informs the audit log, the live feed and the engine, as far as they must know of
 * the change.
 */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import { ConvokeClient } from '@convoke/sdk';
import type { FastifyRequest } from 'fastify';
import type { Author } from '../../src/changes/author.ts';
import { InstanceChanges } from '../../src/changes/instances.ts';
import { Engine } from '../../src/delivery/engine.ts';
import type { FeedEvent } from '../../src/domain/feed_event.ts';
import { Feed } from '../../src/feed/feed.ts';
import { AuditTrail } from '../../src/http/auth/audit_trail.ts';
import { type EventStream, openStream, type StreamedEvent } from '../support/event_stream.ts';
import { refusalByStore, type Service, startService } from '../support/service.ts';

/** The objects that a request names. They are made for this request. */
interface Ids {
  instance_id: string;
  /** A meeting that the instance has not joined. */
  other_id: string;
  meeting_id: string;
  /** A delivery that failed. */
  delivery_id: string;
  key_id: string;
  session_id: string;
  invite_id: string;
  /** The secret of an invite that nobody has redeemed. */
  secret: string;
}

/** Why the audit log, the feed or the engine is not informed of a change. */
type Reason = { because: string };

type EngineCall =
  | 'memberRulesChanged'
  | 'instanceChanged'
  | 'instanceRemoved'
  | 'deliveryRetried'
  | 'meetingChanged'
  | 'send'
  | 'sendAll';

interface Change {
  body?: (ids: Ids) => object;
  audit: string | Reason;
  event: string | Reason;
  /** The method of the engine that the change must call, or why it calls none. */
  engine: EngineCall | Reason;
}

const instance = { instance_name: 'n', agent_ids: ['a'], webhook_url: 'http://127.0.0.1:1/' };

/** The test registers an instance with this name. When its event arrives, the feed has sent all earlier events. */
const MARK = 'mark';

const NO_EVENT_FOR_KEYS: Reason = { because: 'the feed shows messages, deliveries and instances' };
const NOT_DELIVERED: Reason = { because: 'it changes nothing of how messages are delivered' };
const READ_WHEN_STORED: Reason = { because: 'the store reads the memberships when it stores a message' };
const ANOTHER_TEST: Reason = {
  because: 'test/access/sessions.test.ts has it, because it takes a cookie; or test/http/brake.test.ts',
};

const TAKES_A_TOKEN: Reason = { because: 'test/delivery/late_replies.test.ts has it: it takes the token of a push' };

/** The changes, by operation. */
const CHANGES: Record<string, Change> = {
  register: {
    body: ({ other_id }) => ({ ...instance, instance_id: other_id }),
    audit: 'instance.register',
    event: 'instance.registered',
    engine: 'instanceChanged',
  },
  updateInstance: {
    body: () => ({ instance_name: 'm' }),
    audit: 'instance.update',
    event: 'instance.changed',
    engine: 'instanceChanged',
  },
  deleteInstance: { audit: 'instance.delete', event: 'instance.removed', engine: 'instanceRemoved' },
  heartbeat: {
    audit: { because: 'every instance sends one a minute' },
    event: { because: 'every instance sends one a minute' },
    engine: 'instanceChanged',
  },
  pull: {
    body: () => ({ wait_s: 0 }),
    audit: { because: 'a machine does it all the time' },
    event: { because: 'it is told when a machine begins, and test/pull has it' },
    engine: { because: 'the transport tells the engine' },
  },
  rotateSecret: { audit: 'instance.rotate_secret', event: 'instance.changed', engine: 'instanceChanged' },
  recover: {
    body: () => ({ since: '2026-01-01T00:00:00Z' }),
    audit: 'instance.recover',
    event: 'delivery.queued',
    engine: 'deliveryRetried',
  },
  testWebhook: {
    body: ({ instance_id }) => ({ instance_id }),
    audit: 'instance.webhook_test',
    event: { because: 'it is no delivery' },
    engine: { because: 'it is no delivery' },
  },
  joinMeeting: {
    body: ({ instance_id, meeting_id }) => ({ instance_id, meeting_id, agent_ids: ['a'] }),
    audit: 'meeting.join',
    event: 'instance.joined',
    engine: READ_WHEN_STORED,
  },
  leaveMeeting: {
    body: ({ instance_id, meeting_id }) => ({ instance_id, meeting_id }),
    audit: 'meeting.leave',
    event: 'instance.left',
    engine: READ_WHEN_STORED,
  },
  updateMembership: {
    body: () => ({ wake: 'people' }),
    audit: 'membership.update',
    event: 'membership.changed',
    engine: 'memberRulesChanged',
  },
  sendMessage: {
    body: () => ({ message: {} }),
    audit: { because: 'the history has it' },
    event: 'message.accepted',
    engine: 'send',
  },
  sendMessages: {
    body: ({ meeting_id }) => ({ messages: [{ meeting_id, message: {} }] }),
    audit: { because: 'the history has it' },
    event: 'message.accepted',
    engine: 'sendAll',
  },
  updateMeeting: {
    body: () => ({ paused: true }),
    audit: 'meeting.update',
    event: 'meeting.changed',
    engine: 'meetingChanged',
  },
  dropDeliveries: {
    body: ({ meeting_id }) => ({ meeting_id }),
    audit: ANOTHER_TEST,
    event: ANOTHER_TEST,
    engine: ANOTHER_TEST,
  },
  sendReply: { audit: TAKES_A_TOKEN, event: TAKES_A_TOKEN, engine: TAKES_A_TOKEN },
  retryDelivery: { audit: 'delivery.retry', event: 'delivery.queued', engine: 'deliveryRetried' },
  createKey: {
    body: () => ({ scopes: ['read'] }),
    audit: 'key.create',
    event: NO_EVENT_FOR_KEYS,
    engine: NOT_DELIVERED,
  },
  revokeKey: { audit: 'key.revoke', event: NO_EVENT_FOR_KEYS, engine: NOT_DELIVERED },
  rotateKey: { audit: 'key.rotate', event: NO_EVENT_FOR_KEYS, engine: NOT_DELIVERED },
  createPortalLink: { audit: 'portal_link.create', event: NO_EVENT_FOR_KEYS, engine: NOT_DELIVERED },
  createInvite: {
    body: ({ meeting_id }) => ({ meeting_ids: [meeting_id], agent_ids: ['a'] }),
    audit: 'invite.create',
    event: NO_EVENT_FOR_KEYS,
    engine: NOT_DELIVERED,
  },
  revokeInvite: { audit: 'invite.revoke', event: NO_EVENT_FOR_KEYS, engine: NOT_DELIVERED },
  redeemInvite: {
    body: ({ secret }) => ({ secret }),
    audit: 'invite.redeem',
    event: 'instance.changed',
    engine: 'instanceChanged',
  },
  signIn: { audit: 'session.begin', event: NO_EVENT_FOR_KEYS, engine: NOT_DELIVERED },
  signInByLink: { audit: ANOTHER_TEST, event: ANOTHER_TEST, engine: ANOTHER_TEST },
  signOut: { audit: ANOTHER_TEST, event: ANOTHER_TEST, engine: ANOTHER_TEST },
  endSession: { audit: 'session.end', event: NO_EVENT_FOR_KEYS, engine: NOT_DELIVERED },
  reencrypt: { audit: 'encryption.reencrypt', event: NO_EVENT_FOR_KEYS, engine: NOT_DELIVERED },
  beginBackup: { audit: 'service.backup', event: NO_EVENT_FOR_KEYS, engine: NOT_DELIVERED },
  startDemo: { audit: 'demo.start', event: 'instance.registered', engine: 'instanceChanged' },
  stopDemo: { audit: 'demo.stop', event: 'instance.removed', engine: 'instanceRemoved' },
};

interface Operation {
  operation_id: string;
  method: string;
  path: string;
}

async function changingOperations(service: Service): Promise<Operation[]> {
  const { body } = await service.get<{ paths: Record<string, Record<string, { operationId: string }>> }>(
    '/openapi.json',
  );
  return Object.entries(body.paths)
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId: operation_id }]) => ({
        operation_id,
        method: method.toUpperCase(),
        path,
      })),
    )
    .filter(({ method }) => method !== 'GET');
}

async function makeIds(service: Service, client: ConvokeClient, t: TestContext): Promise<Ids> {
  const meeting_id = service.name('meeting');
  // A delivery fails at once after a 2xx other than 200.
  const { instance_id } = await service.member(t, meeting_id, { behaviour: () => ({ status: 202 }) });
  const { delivery_id } = await service.settled(await service.send(meeting_id, {}));
  const { key_id } = await service.createKey({ scopes: ['instance'] });
  await service.post('/api/v1/session/');
  const { session_id } = (await client.listSessions({ limit: 1 })).data[0]!;
  // The invite is for an instance that exists, so that its redemption gives the instance another owner.
  const invite = await client.createInvite({ meeting_ids: [meeting_id], agent_ids: ['a'], instance_id });
  const { invite_id } = invite;
  const secret = invite.link.split('/').at(-1)!;
  const other_id = service.name('instance');
  return { instance_id, other_id, meeting_id, delivery_id, key_id, session_id, invite_id, secret };
}

/** Makes a request of each operation. Lists which of audit log, feed and engine was not informed of it. */
async function walk(t: TestContext): Promise<string[]> {
  const service = await startService(t);
  await service.endOpenMode();
  const client = new ConvokeClient({ base_url: service.url, api_key: service.token! });
  const stream = await openStream(`${service.url}/api/v1/events/`, { authorization: `Bearer ${service.token}` });
  t.after(() => stream.close());
  const untold: string[] = [];
  for (const { operation_id, method, path } of await changingOperations(service)) {
    const { body, audit, event, engine } = CHANGES[operation_id]!;
    if (audit === ANOTHER_TEST || audit === TAKES_A_TOKEN) continue;
    const ids = await makeIds(service, client, t);
    const asked = body?.(ids);
    const about = new Set(Object.values(ids).concat((await client.demo()).instance_ids));
    const at = path.replaceAll(/\{(\w+)\}/g, (_, name: keyof Ids) => ids[name]);
    const { seq: last = 0 } = (await client.listAudit({ limit: 1 })).data[0] ?? {};
    const calls = typeof engine === 'string' ? callsOf(t, engine) : null;
    const events_before = stream.events.length;
    const done = await service.request<{ code?: string }>(method, at, asked === undefined ? {} : { body: asked });
    const is_broken =
      (operation_id === 'heartbeat' && done.status === 404) || (operation_id === 'pull' && done.status === 422);
    if (refusalByStore(operation_id) !== null && done.body.code === refusalByStore(operation_id)) continue;
    assert.ok(done.status < 300 || is_broken, `${operation_id}: ${done.text}`);
    if (typeof audit === 'string') {
      const { data } = await client.listAudit({ limit: 10 });
      if (!data.some(({ seq, action }) => seq > last && action === audit)) untold.push(`${operation_id}: audit log`);
    }
    if (calls?.() === 0) untold.push(`${operation_id}: engine`);
    if (typeof event === 'string') {
      for (const instance_id of (await client.demo()).instance_ids) about.add(instance_id);
      // The feed publishes in order: an event that does not come before this mark never comes.
      const mark = await service.register({ webhook_url: instance.webhook_url, instance_name: MARK });
      const events = await eventsUntil(stream, events_before, mark.instance_id);
      const is_published = events.some(
        ({ name, data }) =>
          name === event && [data['instance_id'], data['meeting_id']].some((id) => about.has(String(id))),
      );
      if (!is_published) untold.push(`${operation_id}: feed`);
    }
  }
  return untold;
}

/** The events after the first `from` events, up to the registration of an instance. */
async function eventsUntil(stream: EventStream, from: number, instance_id: string): Promise<StreamedEvent[]> {
  const isMark = ({ name, data }: StreamedEvent): boolean =>
    name === 'instance.registered' && data['instance_id'] === instance_id;
  await stream.some(1, isMark);
  return stream.events.slice(from, stream.events.findIndex(isMark));
}

/** Counts the later calls of a method of the engine. */
function callsOf(t: TestContext, name: EngineCall): () => number {
  const { mock } = t.mock.method(Engine.prototype, name);
  const before = mock.callCount();
  return () => mock.callCount() - before;
}

describe('every route that changes something', () => {
  test('informs the audit log, the feed and the engine, or has a reason why not', async (t) => {
    assert.deepEqual(await walk(t), []);
  });

  test('control: changes that forget the feed, the audit log or the engine are found', async (t) => {
    // oxlint-disable-next-line typescript/unbound-method -- it is called with a feed below
    const publish = Feed.prototype.publish;
    t.mock.method(Feed.prototype, 'publish', function (this: Feed, event: FeedEvent) {
      // The test itself waits for this event.
      if (event.name === 'instance.registered' && event.data.instance_name === MARK) publish.call(this, event);
    });
    // oxlint-disable-next-line typescript/unbound-method -- it is called with an audit trail below
    const authorOf = AuditTrail.prototype.authorOf;
    t.mock.method(AuditTrail.prototype, 'authorOf', function (this: AuditTrail, request: FastifyRequest): Author {
      const author = authorOf.call(this, request);
      const elsewhere = { action: 'authenticate' } as const;
      return {
        ...author,
        storeFor: (more) => author.storeFor({ ...more, ...elsewhere }),
        record: async () => {},
      };
    });
    // oxlint-disable-next-line typescript/unbound-method -- it is called with an audit trail below
    const holderOfInvite = AuditTrail.prototype.holderOfInvite;
    t.mock.method(AuditTrail.prototype, 'holderOfInvite', function (this: AuditTrail, request: FastifyRequest) {
      const holder = holderOfInvite.call(this, request);
      return { storeFor: (more: object) => holder.storeFor({ ...more, action: 'authenticate' }) };
    });
    t.mock.method(InstanceChanges.prototype, 'heartbeat', async () => null);
    const made = Object.entries(CHANGES).filter(([operation_id]) => refusalByStore(operation_id) === null);
    const expected = made.flatMap(([operation_id, { audit, event }]) => [
      ...(typeof audit === 'string' ? [`${operation_id}: audit log`] : []),
      ...(typeof event === 'string' ? [`${operation_id}: feed`] : []),
      ...(operation_id === 'heartbeat' ? ['heartbeat: engine'] : []),
    ]);
    assert.deepEqual((await walk(t)).toSorted(), expected.toSorted());
  });
});
