/**
 * Who may do what: every route with every kind of principal. The routes come from the OpenAPI document of the running
 * service. A route that is not in the table below fails the test.
 */
import assert from 'node:assert/strict';
import crypto, { randomBytes } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import { before, describe, test, type TestContext } from 'node:test';
import type { CreateKeyInput, InviteWithLink, OpenSession, Page, PortalLink } from '@convoke/sdk';
import type { OwnerScope, Principal } from '../../src/domain/access.ts';
import { ID_BYTES, makeKeyId, makeToken, SECRET_BYTES } from '../../src/domain/api_key.ts';
import type { Problem } from '../../src/domain/problem.ts';
import { EARLIER_MAX } from '../../src/domain/rotation.ts';
import { Keyring } from '../../src/http/auth/keyring.ts';
import type { Standing } from '../../src/http/auth/standing.ts';
import { Database } from '../../src/store/sqlite/database.ts';
import type { Store } from '../../src/store/store.ts';
import { buildIfStale } from '../../scripts/web.ts';
import { HOUR, openStoreHere, SECRET } from '../support/node.ts';
import { routesOnly } from '../support/routes.ts';
import {
  type Answer,
  assertProblem,
  messagesPath,
  refusalByStore,
  type Service,
  startService,
  useService,
} from '../support/service.ts';
import { SetClock } from '../support/set_clock.ts';
import { until } from '../support/wait.ts';

const HERE = 'meeting-1';
const ELSEWHERE = 'meeting-2';

/**
 * The keys of the columns. `owner` and `owner.e` own the instance in question; `other` and `bound` do not. The last
 * column, `link`, is a portal link for `owner`.
 */
const KEYS = {
  admin: { scopes: ['admin'] },
  read: { scopes: ['read'] },
  'read.h': { scopes: ['read'], meeting_ids: [HERE] },
  'read.e': { scopes: ['read'], meeting_ids: [ELSEWHERE] },
  send: { scopes: ['send'] },
  'send.h': { scopes: ['send'], meeting_ids: [HERE] },
  'send.e': { scopes: ['send'], meeting_ids: [ELSEWHERE] },
  owner: { scopes: ['instance'] },
  'owner.e': { scopes: ['instance'], meeting_ids: [ELSEWHERE] },
  other: { scopes: ['instance'] },
  bound: { scopes: ['instance'], instance_id: 'bound' },
} as const satisfies Record<string, unknown>;
type Column = keyof typeof KEYS | 'link';
const COLUMNS = [...Object.keys(KEYS), 'link'] as Column[];

/**
 * yes: the request is done. no: the response is the same as for a missing object. `-`: 403 not_permitted, whether the
 * object exists or not. taken: 409, the only response from which a caller learns that an id exists. Words in brackets
 * distinguish the cases of an operation.
 */
// prettier-ignore
const TABLE: Record<string, string> = {
  //                               admin  read  read.h read.e send  send.h send.e owner owner.e other  bound   link
  'register':                     'yes    -     -      -      -     -      -      yes   yes     taken  -       -',
  'listInstances':                'yes    yes   yes    no     -     -      -      yes   yes     no     no      yes',
  'listInstances (meeting)':      'yes    yes   yes    -      -     -      -      yes   -       no     no      yes',
  'getInstance':                  'yes    yes   yes    no     -     -      -      yes   yes     no     no      yes',
  'getInstanceHistory':           'yes    yes   yes    no     -     -      -      yes   yes     no     no      yes',
  'updateInstance':               'yes    -     -      -      -     -      -      yes   yes     no     no      yes',
  'updateInstance (hand over)':   'yes    -     -      -      -     -      -      -     -       -      -       -',
  'deleteInstance':               'yes    -     -      -      -     -      -      yes   yes     no     no      -',
  'heartbeat':                    'yes    -     -      -      -     -      -      yes   yes     no     no      yes',
  'pull':                         'yes    -     -      -      -     -      -      yes   yes     no     no      -',
  'rotateSecret':                 'yes    -     -      -      -     -      -      yes   yes     no     no      -',
  'recover':                      'yes    -     -      -      -     -      -      yes   yes     no     no      yes',
  'testWebhook':                  'yes    -     -      -      -     -      -      yes   yes     no     no      yes',
  'joinMeeting':                  'yes    -     -      -      -     -      -      yes   -       no     no      -',
  'leaveMeeting':                 'yes    -     -      -      -     -      -      yes   -       no     no      -',
  'updateMembership':             'yes    -     -      -      -     -      -      yes   -       no     no      -',
  'listMeetings':                 'yes    yes   yes    no     -     -      -      -     -       -      -       -',
  'getMeeting':                   'yes    yes   yes    -      -     -      -      -     -       -      -       -',
  'updateMeeting':                'yes    -     -      -      -     -      -      -     -       -      -       -',
  'listMeetingInstances':         'yes    yes   yes    -      -     -      -      -     -       -      -       -',
  'explain':                      'yes    yes   yes    -      -     -      -      -     -       -      -       -',
  'sendMessage':                  'yes    -     -      -      yes   yes    -      -     -       -      -       -',
  'sendMessage (as an agent)':    'yes    -     -      -      yes   yes    -      yes   -       -      -       -',
  'sendMessages':                 'yes    -     -      -      yes   yes    -      -     -       -      -       -',
  'sendMessages (as an agent)':   'yes    -     -      -      yes   yes    -      yes   -       -      -       -',
  'listMessages':                 'yes    yes   yes    -      -     -      -      -     -       -      -       -',
  'findMessages':                 'yes    yes   yes    no     -     -      -      -     -       -      -       -',
  'getMessage':                   'yes    yes   yes    no     -     -      -      -     -       -      -       -',
  'listDeliveries':               'yes    yes   yes    no     -     -      -      yes   yes     no     no      yes',
  'listDeliveries (text)':        'yes    yes   yes    no     -     -      -      -     -       -      -       -',
  'listDeliveries (meeting)':     'yes    yes   yes    -      -     -      -      yes   -       no     no      yes',
  'getDelivery':                  'yes    yes   yes    no     -     -      -      yes   yes     no     no      yes',
  'getDeliveryPush':              'yes    yes   yes    no     -     -      -      yes   yes     no     no      yes',
  'retryDelivery':                'yes    -     -      -      -     -      -      yes   yes     no     no      yes',
  'dropDeliveries':               'yes    -     -      -      -     -      -      yes   yes     no     no      -',
  'dropDeliveries (meeting)':     'yes    -     -      -      -     -      -      yes   -       no     no      -',
  'createKey':                    'yes    -     -      -      -     -      -      -     -       -      -       -',
  'listKeys':                     'yes    -     -      -      -     -      -      -     -       -      -       -',
  'getKey':                       'yes    -     -      -      -     -      -      -     -       -      -       -',
  'revokeKey':                    'yes    -     -      -      -     -      -      -     -       -      -       -',
  'rotateKey':                    'yes    -     -      -      -     -      -      -     -       -      -       -',
  'createPortalLink':             'yes    -     -      -      -     -      -      -     -       -      -       -',
  'createInvite':                 'yes    -     -      -      -     -      -      -     -       -      -       -',
  'listInvites':                  'yes    -     -      -      -     -      -      -     -       -      -       -',
  'revokeInvite':                 'yes    -     -      -      -     -      -      -     -       -      -       -',
  'redeemInvite':                 'yes    yes   yes    yes    yes   yes    yes    yes   yes     yes    yes     yes',
  'listSessions':                 'yes    -     -      -      -     -      -      -     -       -      -       -',
  'endSession':                   'yes    -     -      -      -     -      -      -     -       -      -       -',
  'listAudit':                    'yes    -     -      -      -     -      -      -     -       -      -       -',
  'reencrypt':                    'yes    -     -      -      -     -      -      -     -       -      -       -',
  'beginBackup':                  'yes    -     -      -      -     -      -      -     -       -      -       -',
  'fetchBackup':                  'no     -     -      -      -     -      -      -     -       -      -       -',
  'getDemo':                      'yes    -     -      -      -     -      -      -     -       -      -       -',
  'startDemo':                    'yes    -     -      -      -     -      -      -     -       -      -       -',
  'stopDemo':                     'yes    -     -      -      -     -      -      -     -       -      -       -',
  'streamEvents':                 'yes    yes   yes    yes    -     -      -      yes   yes     yes    yes     yes',
  'streamEvents (meeting)':       'yes    yes   yes    -      -     -      -      yes   -       yes    yes     yes',
  'signIn':                       'yes    yes   yes    yes    yes   yes    yes    yes   yes     yes    yes     -',
  'signOut':                      'yes    yes   yes    yes    yes   yes    yes    yes   yes     yes    yes     -',
  'metrics':                      'yes    yes   -      -      -     -      -      -     -       -      -       -',
  'getSession':                   'yes    yes   yes    yes    yes   yes    yes    yes   yes     yes    yes     yes',
  'signInByLink':                 'yes    yes   yes    yes    yes   yes    yes    yes   yes     yes    yes     yes',
  'listNodes':                    'yes    yes   -      -      -     -      -      -     -       -      -       -',
  'getCounts':                    'yes    yes   yes    yes    -     -      -      yes   yes     yes    yes     yes',
  'getHistory':                   'yes    yes   -      -      -     -      -      -     -       -      -       -',
  'sendReply':                    'yes    yes   yes    yes    yes   yes    yes    yes   yes     yes    yes     yes',
  'healthz':                      'yes    yes   yes    yes    yes   yes    yes    yes   yes     yes    yes     yes',
  'readyz':                       'yes    yes   yes    yes    yes   yes    yes    yes   yes     yes    yes     yes',
};

/** The cells of requests that change nothing. */
const LEAVES_UNCHANGED = ['no', '-', 'taken'];

/** The operations that need no key. */
const PUBLIC = ['sendReply', 'healthz', 'readyz', 'getSession', 'signInByLink', 'redeemInvite'];

/** The ids that a request names: ids of existing objects, or of missing objects. */
interface Ids {
  instance_id: string;
  agent_id: string;
  meeting_id: string;
  message_id: string;
  delivery_id: string;
  key_id: string;
  session_id: string;
  invite_id: string;
  link: string;
}

interface Ask {
  method: string;
  path: string;
  body?: object;
}

const WEBHOOK_URL = 'http://127.0.0.1:1/';
const instances = (id: string, rest = ''): string => `/api/v1/instances/${id}/${rest}`;

/**
 * One request for each row, about existing objects. The test also makes each request about missing objects, except for
 * the rows in ABOUT_NOTHING.
 */
const ASKS: Record<string, (ids: Ids) => Ask> = {
  register: ({ instance_id, agent_id }) => ({
    method: 'POST',
    path: instances('register'),
    body: { instance_id, instance_name: 'n', agent_ids: [agent_id], webhook_url: WEBHOOK_URL },
  }),
  listInstances: ({ instance_id }) => ({ method: 'GET', path: `/api/v1/instances/?q=${instance_id}` }),
  'listInstances (meeting)': ({ agent_id }) => ({
    method: 'GET',
    path: `/api/v1/instances/?meeting_id=${HERE}&agent_id=${agent_id}`,
  }),
  getInstance: ({ instance_id }) => ({ method: 'GET', path: instances(instance_id) }),
  getInstanceHistory: ({ instance_id }) => ({ method: 'GET', path: `${instances(instance_id)}history/` }),
  updateInstance: ({ instance_id }) => ({
    method: 'PATCH',
    path: instances(instance_id),
    body: { instance_name: 'changed', webhook_enabled: true },
  }),
  'updateInstance (hand over)': ({ instance_id }) => ({
    method: 'PATCH',
    path: instances(instance_id),
    body: { owner_key_id: null },
  }),
  deleteInstance: ({ instance_id }) => ({ method: 'DELETE', path: instances(instance_id) }),
  heartbeat: ({ instance_id }) => ({ method: 'POST', path: instances(instance_id, 'heartbeat/') }),
  pull: ({ instance_id }) => ({ method: 'POST', path: instances(instance_id, 'pull/'), body: { wait_s: 0 } }),
  rotateSecret: ({ instance_id }) => ({ method: 'POST', path: instances(instance_id, 'rotate-secret/') }),
  recover: ({ instance_id }) => ({
    method: 'POST',
    path: instances(instance_id, 'recover/'),
    body: { since: '2026-01-01T00:00:00Z' },
  }),
  testWebhook: ({ instance_id }) => ({ method: 'POST', path: instances('webhook-test'), body: { instance_id } }),
  joinMeeting: ({ instance_id, agent_id }) => ({
    method: 'POST',
    path: instances('join-meeting'),
    body: { instance_id, meeting_id: HERE, agent_ids: [agent_id] },
  }),
  leaveMeeting: ({ instance_id }) => ({
    method: 'POST',
    path: instances('leave-meeting'),
    body: { instance_id, meeting_id: HERE },
  }),
  updateMembership: ({ meeting_id, instance_id }) => ({
    method: 'PATCH',
    path: `/api/v1/meetings/${meeting_id}/instances/${instance_id}/`,
    body: { wake: 'all' },
  }),
  listMeetings: ({ meeting_id }) => ({ method: 'GET', path: `/api/v1/meetings/?q=${meeting_id}` }),
  getMeeting: ({ meeting_id }) => ({ method: 'GET', path: `/api/v1/meetings/${meeting_id}/` }),
  updateMeeting: ({ meeting_id }) => ({
    method: 'PATCH',
    path: `/api/v1/meetings/${meeting_id}/`,
    body: { paused: false },
  }),
  listMeetingInstances: ({ meeting_id }) => ({ method: 'GET', path: `/api/v1/meetings/${meeting_id}/instances/` }),
  explain: ({ meeting_id }) => ({ method: 'GET', path: `/api/v1/meetings/${meeting_id}/explain/` }),
  sendMessage: () => ({ method: 'POST', path: messagesPath(HERE), body: { message: {}, target_agents: ['nobody'] } }),
  'sendMessage (as an agent)': ({ agent_id }) => ({
    method: 'POST',
    path: messagesPath(HERE),
    body: { message: {}, target_agents: ['nobody'], from_agent: agent_id },
  }),
  sendMessages: () => ({
    method: 'POST',
    path: '/api/v1/messages/',
    body: { messages: [{ meeting_id: HERE, message: {}, target_agents: ['nobody'] }] },
  }),
  'sendMessages (as an agent)': ({ agent_id }) => ({
    method: 'POST',
    path: '/api/v1/messages/',
    body: { messages: [{ meeting_id: HERE, message: {}, target_agents: ['nobody'], from_agent: agent_id }] },
  }),
  listMessages: ({ meeting_id }) => ({ method: 'GET', path: messagesPath(meeting_id) }),
  findMessages: ({ delivery_id }) => ({ method: 'GET', path: `/api/v1/messages/?id=${delivery_id}` }),
  getMessage: ({ message_id }) => ({ method: 'GET', path: `/api/v1/messages/${message_id}/` }),
  listDeliveries: ({ instance_id }) => ({ method: 'GET', path: `/api/v1/deliveries/?instance_id=${instance_id}` }),
  'listDeliveries (text)': ({ instance_id }) => ({
    method: 'GET',
    path: `/api/v1/deliveries/?instance_id=${instance_id}&text=%7B`,
  }),
  'listDeliveries (meeting)': ({ instance_id }) => ({
    method: 'GET',
    path: `/api/v1/deliveries/?meeting_id=${HERE}&instance_id=${instance_id}`,
  }),
  getDelivery: ({ delivery_id }) => ({ method: 'GET', path: `/api/v1/deliveries/${delivery_id}/` }),
  getDeliveryPush: ({ delivery_id }) => ({ method: 'GET', path: `/api/v1/deliveries/${delivery_id}/push/` }),
  retryDelivery: ({ delivery_id }) => ({ method: 'POST', path: `/api/v1/deliveries/${delivery_id}/retry/` }),
  dropDeliveries: ({ instance_id }) => ({ method: 'POST', path: '/api/v1/deliveries/drop/', body: { instance_id } }),
  'dropDeliveries (meeting)': ({ instance_id }) => ({
    method: 'POST',
    path: '/api/v1/deliveries/drop/',
    body: { instance_id, meeting_id: HERE },
  }),
  createKey: () => ({ method: 'POST', path: '/api/v1/keys/', body: { scopes: ['read'] } }),
  listKeys: () => ({ method: 'GET', path: '/api/v1/keys/' }),
  getKey: ({ key_id }) => ({ method: 'GET', path: `/api/v1/keys/${key_id}/` }),
  revokeKey: ({ key_id }) => ({ method: 'DELETE', path: `/api/v1/keys/${key_id}/` }),
  rotateKey: ({ key_id }) => ({ method: 'POST', path: `/api/v1/keys/${key_id}/rotate/` }),
  createPortalLink: ({ key_id }) => ({ method: 'POST', path: `/api/v1/keys/${key_id}/portal-link/` }),
  createInvite: ({ meeting_id, agent_id }) => ({
    method: 'POST',
    path: '/api/v1/invites/',
    body: { meeting_ids: [meeting_id], agent_ids: [agent_id] },
  }),
  listInvites: () => ({ method: 'GET', path: '/api/v1/invites/' }),
  revokeInvite: ({ invite_id }) => ({ method: 'DELETE', path: `/api/v1/invites/${invite_id}/` }),
  redeemInvite: ({ link }) => ({ method: 'POST', path: '/api/v1/invites/redeem/', body: { secret: link } }),
  listSessions: () => ({ method: 'GET', path: '/api/v1/sessions/' }),
  endSession: ({ session_id }) => ({ method: 'DELETE', path: `/api/v1/sessions/${session_id}/` }),
  listAudit: () => ({ method: 'GET', path: '/api/v1/audit/' }),
  reencrypt: () => ({ method: 'POST', path: '/api/v1/encryption/reencrypt/' }),
  beginBackup: () => ({ method: 'POST', path: '/api/v1/backups/' }),
  fetchBackup: () => ({ method: 'GET', path: '/api/v1/backups/none/' }),
  getDemo: () => ({ method: 'GET', path: '/api/v1/demo/' }),
  startDemo: () => ({ method: 'POST', path: '/api/v1/demo/' }),
  stopDemo: () => ({ method: 'DELETE', path: '/api/v1/demo/' }),
  streamEvents: () => ({ method: 'GET', path: '/api/v1/events/' }),
  'streamEvents (meeting)': () => ({ method: 'GET', path: `/api/v1/events/?meeting_id=${HERE}` }),
  signIn: () => ({ method: 'POST', path: '/api/v1/session/' }),
  signOut: () => ({ method: 'DELETE', path: '/api/v1/session/' }),
  metrics: () => ({ method: 'GET', path: '/metrics' }),
  getSession: () => ({ method: 'GET', path: '/api/v1/session/' }),
  signInByLink: ({ link }) => ({ method: 'POST', path: '/api/v1/session/link/', body: { token: link } }),
  listNodes: () => ({ method: 'GET', path: '/api/v1/nodes/' }),
  getCounts: () => ({ method: 'GET', path: '/api/v1/counts/' }),
  getHistory: () => ({ method: 'GET', path: '/api/v1/history/' }),
  sendReply: () => ({ method: 'POST', path: '/api/v1/replies/', body: { reply: 'x' } }),
  healthz: () => ({ method: 'GET', path: '/healthz' }),
  readyz: () => ({ method: 'GET', path: '/readyz' }),
};

/** Rows whose request names no existing object, or creates the object that it names. */
const ABOUT_NOTHING = [
  'register',
  'sendMessage',
  'sendMessage (as an agent)',
  'sendMessages',
  'sendMessages (as an agent)',
  'createKey',
  'listKeys',
  'createInvite',
  'listInvites',
  'listSessions',
  'listAudit',
  'reencrypt',
  'beginBackup',
  'getDemo',
  'startDemo',
  'stopDemo',
  'streamEvents',
  'streamEvents (meeting)',
  'signIn',
  'signOut',
  'metrics',
  'listNodes',
  'getCounts',
  'getHistory',
  ...PUBLIC,
];

/** Ids of missing objects. They are as long as ids of existing objects, because responses are compared byte by byte. */
const MISSING: Ids = {
  instance_id: 'missing-0000',
  agent_id: 'missing-a000',
  meeting_id: 'meeting-0',
  message_id: `msg_${'0'.repeat(19)}`,
  delivery_id: `dlv_${'0'.repeat(19)}`,
  key_id: 'nosuchkey000',
  session_id: '0'.repeat(20),
  invite_id: `inv_${'0'.repeat(12)}`,
  link: 'l'.repeat(43),
};

/** A service with the keys of the columns, and with a message in each of the meetings HERE and ELSEWHERE. */
class House {
  readonly service: Service;
  readonly tokens = {} as Record<Column, string>;
  #owner = '';
  #made = 0;

  constructor(service: Service) {
    this.service = service;
  }

  async open(): Promise<void> {
    await this.service.endOpenMode();
    for (const [column, input] of Object.entries(KEYS)) {
      const { key_id, token } = await this.service.createKey(input as unknown as CreateKeyInput);
      this.tokens[column as Column] = token;
      if (column === 'owner') this.#owner = key_id;
    }
    for (const meeting_id of [HERE, ELSEWHERE]) await this.service.send(meeting_id, {});
  }

  /**
   * The token of a new portal link. Each test needs a new link, because a change of the data key ends earlier links.
   */
  async #newLink(): Promise<string> {
    const { body } = await this.service.post<PortalLink>(`/api/v1/keys/${this.#owner}/portal-link/`);
    return new URL(body.link).hash.replace('#link=', '');
  }

  ask({ method, path, body }: Ask, token: string | null): Promise<Answer<unknown>> {
    const authorization = token === null ? {} : { authorization: `Bearer ${token}` };
    const previous = this.service.token;
    this.service.token = null;
    const asked = this.service.request(method, path, {
      headers: authorization,
      ...(body === undefined ? {} : { body }),
    });
    this.service.token = previous;
    return asked;
  }

  /** Makes an instance in the meeting HERE with a delivery. It belongs to the key of a column, or to nobody. */
  async furnish(owner: Column | null, row: string): Promise<Ids> {
    const number = String(++this.#made).padStart(4, '0');
    const ids: Ids = {
      ...MISSING,
      instance_id: `present-${number}`,
      agent_id: `present-a${number.slice(1)}`,
      meeting_id: HERE,
    };
    if (row === 'signInByLink')
      return { ...ids, link: new URL(this.service.signInLink()).hash.split('=')[1] as string };
    if (row.endsWith('Invite')) {
      const input = { meeting_ids: [HERE], agent_ids: [ids.agent_id] };
      const { body } = await this.service.post<InviteWithLink>('/api/v1/invites/', input);
      return { ...ids, invite_id: body.invite_id, link: body.link.split('/').at(-1) as string };
    }
    if (PUBLIC.includes(row)) return ids;
    if (row === 'endSession') {
      await this.ask({ method: 'POST', path: '/api/v1/session/' }, this.tokens.admin);
      const { data } = (await this.service.get<Page<OpenSession>>('/api/v1/sessions/?limit=1')).body;
      return { ...ids, session_id: data[0]!.session_id };
    }
    if (row.endsWith('Key') || row === 'createPortalLink') {
      const { key_id } = await this.service.createKey({ scopes: ['instance'] });
      return { ...ids, key_id };
    }
    const ask = ASKS['register']!(ids);
    if (row === 'pull') ask.body = { ...ask.body, transport: 'pull' };
    const registered = await this.ask(ask, this.tokens[owner ?? 'admin']);
    assert.equal(registered.status, 201, registered.text);
    if (owner === null) await this.service.patch(ids.instance_id, { owner_key_id: null });
    await this.service.join(HERE, ids.instance_id, [ids.agent_id]);
    if (!row.includes('Deliver') && row !== 'getMessage' && row !== 'findMessages') return ids;
    const sent = await this.service.send(HERE, {}, [ids.agent_id]);
    const [delivery] = await this.service.deliveriesOf(sent);
    return { ...ids, message_id: sent.message_id, delivery_id: delivery!.delivery_id };
  }

  /** What the response to the key of a column means, in the words of the table. */
  async verdictOf(row: string, column: Column, ids: Ids): Promise<string> {
    const ask = ASKS[row]!;
    if (column === 'link') this.tokens.link = await this.#newLink();
    const answer = await this.ask(ask(ids), this.tokens[column]);
    if (row === 'beginBackup' && answer.status === 201) await this.fetchBackup(answer.body as { backup_id: string });
    const missing = ABOUT_NOTHING.includes(row) ? null : await this.ask(ask(MISSING), this.tokens[column]);
    const is_alike = missing !== null && visiblePart(answer, ids) === visiblePart(missing, ids);
    // The response to a list has a result for each message. Here the list has one message.
    const { results } = (answer.body ?? {}) as { results?: { problem?: { code: string } }[] };
    const { code } = results?.[0]?.problem ?? ((answer.body ?? {}) as { code?: string });
    if (code === 'not_permitted') return missing === null || is_alike ? '-' : 'forbidden, but not as what is missing';
    if (code === 'instance_id_taken') return 'taken';
    // The caller may do this. The service answers `overloaded`, because the test allows no listeners: the response of a
    // feed would not end.
    if (code === 'overloaded') return 'yes';
    // The caller may do this, but the store of this run cannot.
    if (code !== undefined && code === refusalByStore(row)) return 'yes';
    // This route requires the token of a push from every caller, whatever key the caller has.
    if (code === 'reply_token_not_valid') return 'yes';
    if (is_alike) return 'no';
    return answer.status < 300 ? 'yes' : `${answer.status} ${code ?? ''}`;
  }

  /** Fetches a backup to its end: only one backup is made at a time, so the next row must wait for this backup. */
  async fetchBackup({ backup_id }: { backup_id: string }): Promise<void> {
    const ask = { method: 'GET', path: `/api/v1/backups/${backup_id}/` };
    await until(
      'a copy',
      () => this.ask(ask, this.tokens.admin),
      ({ status }) => status === 200,
    );
  }

  /** Lists the cells in which the service and the table disagree. */
  async walk(columns: readonly Column[] = COLUMNS, is_owned = true): Promise<string[]> {
    const wrong: string[] = [];
    for (const [row, cells] of Object.entries(TABLE)) {
      const expected = cells.split(/ +/);
      const unchanged = new Map<Column | null, Ids>();
      for (const column of columns) {
        const owner = !is_owned ? null : column === 'owner.e' ? 'owner.e' : 'owner';
        const ids = unchanged.get(owner) ?? (await this.furnish(owner, row));
        const verdict = await this.verdictOf(row, column, ids);
        // A read or a refused request leaves the objects as they were, so the next column can name them too.
        if (ASKS[row]!(ids).method === 'GET' || LEAVES_UNCHANGED.includes(verdict)) unchanged.set(owner, ids);
        else unchanged.delete(owner);
        const cell = expected[COLUMNS.indexOf(column)];
        if (verdict !== cell) wrong.push(`${row}: ${column} is ${verdict}, not ${cell}`);
      }
    }
    return wrong;
  }
}

/** Everything that a caller sees of a response, except the requested ids and the time. */
function visiblePart({ status, headers, text }: Answer<unknown>, ids: Ids): string {
  const { date: _, ...others } = headers;
  let seen = JSON.stringify([status, others, text]);
  for (const id of [...Object.values(ids), ...Object.values(MISSING)] as string[]) seen = seen.replaceAll(id, 'ID');
  return seen;
}

interface OpenApi {
  paths: Record<string, Record<string, { operationId: string; security?: Record<string, string[]>[] }>>;
}

function operationsOf({ paths }: OpenApi) {
  return Object.values(paths).flatMap((methods) => Object.values(methods));
}

/** Lists the operations of a document that have no row, and the rows that have no operation. */
function unmatched(document: OpenApi): string[] {
  const operations = new Set(operationsOf(document).map(({ operationId }) => operationId));
  const rows = new Set(Object.keys(TABLE).map((row) => row.split(' ')[0] as string));
  return [...[...operations].filter((name) => !rows.has(name)), ...[...rows].filter((name) => !operations.has(name))];
}

async function startHouse(t: TestContext): Promise<House> {
  const house = new House(await startService(t, { max_feed_listeners: '0' }));
  await house.open();
  return house;
}

/** Changes each principal that the running service finds. */
function replacePrincipals(t: TestContext, change: (principal: Principal) => Principal): void {
  const original = Reflect.get(Keyring.prototype, 'identify');
  t.mock.method(Keyring.prototype, 'identify', function (this: Keyring, authorization: string | undefined): Standing {
    const standing = original.call(this, authorization);
    return {
      principal: change(standing.principal),
      token: standing.token,
      revocationReason: () => standing.revocationReason(),
    };
  });
}

describe('every route with every kind of principal:', () => {
  const clock = new SetClock();
  // This test sends more wrong keys than the service allows.
  const house = new House(useService({ auth_failure_rate: '0', max_feed_listeners: '0' }, clock));
  before(() => house.open());

  test('the table has a row for each operation of the running service, a request for each row, and a cell for each column', async () => {
    const { body } = await house.service.get<OpenApi>('/openapi.json');
    assert.deepEqual(unmatched(body), []);
    assert.deepEqual(Object.keys(ASKS), Object.keys(TABLE));
    for (const [row, cells] of Object.entries(TABLE)) assert.equal(cells.split(/ +/).length, COLUMNS.length, row);
  });

  test('control: an operation that is not in the table is found', async () => {
    const { body } = await house.service.get<OpenApi>('/openapi.json');
    const grown: OpenApi = { paths: { ...body.paths, '/new/': { get: { operationId: 'newOperation' } } } };
    assert.deepEqual(unmatched(grown), ['newOperation']);
  });

  test('each gets what the table says', async () => assert.deepEqual(await house.walk(), []));

  test('what has no owner belongs to no caller', async () => {
    assert.deepEqual(await house.walk(['admin', 'read', 'other', 'bound'], false), []);
  });

  test('without a valid key, every route that is not public responds with 401, whatever it is about', async () => {
    const { service } = house;
    const known = await service.createKey({ scopes: ['admin'] });
    const revoked = await service.createKey({ scopes: ['admin'] });
    await service.request('DELETE', `/api/v1/keys/${revoked.key_id}/`);
    const expires_at = new Date(clock.wall() + HOUR).toISOString();
    const expired = await service.createKey({ scopes: ['admin'], expires_at });
    assert.equal((await house.ask({ method: 'GET', path: '/metrics' }, expired.token)).status, 200, 'control');
    clock.step(HOUR);
    const refused: [string | null, string][] = [
      [null, 'api_key_missing'],
      [known.token.slice(0, -1), 'api_key_malformed'],
      [`${known.token.slice(0, -1)}${known.token.endsWith('A') ? 'B' : 'A'}`, 'api_key_malformed'],
      [makeToken(makeKeyId(randomBytes(ID_BYTES)), randomBytes(SECRET_BYTES)), 'api_key_unknown'],
      [makeToken(known.key_id, randomBytes(SECRET_BYTES)), 'api_key_unknown'],
      [makeToken(revoked.key_id, randomBytes(SECRET_BYTES)), 'api_key_unknown'],
      [revoked.token, 'api_key_revoked'],
      [expired.token, 'api_key_expired'],
    ];
    const ids = await house.furnish('owner', 'getDelivery');
    for (const [row, ask] of Object.entries(ASKS)) {
      const answers = new Map<string, string>();
      for (const [token, code] of refused) {
        const answer = await house.ask(ask(ids), token);
        // The service refuses a wrong key even for operations that need no key.
        const is_asked = row === 'getSession' && token !== null;
        if (PUBLIC.includes(row) && !is_asked) {
          // Anybody may redeem an invite, so the key changes nothing. There is no invite with this secret.
          if (row === 'redeemInvite') assertProblem(answer, 404, 'invite_does_not_exist');
          else if (row === 'signInByLink') assertProblem(answer, 401, 'sign_in_link_not_valid');
          // The route takes the token of a push, and a key is no such token.
          else if (row === 'sendReply') assertProblem(answer, 401, 'reply_token_not_valid');
          else assert.equal(answer.status, 200, row);
          continue;
        }
        assertProblem(answer, 401, code);
        assert.match(String(answer.headers['www-authenticate']), /^Bearer realm="convoke"/, row);
        assert.equal(
          visiblePart(answer, ids),
          answers.get(code) ?? visiblePart(answer, ids),
          `${row}: ${code} is answered in one way`,
        );
        answers.set(code, visiblePart(answer, ids));
      }
    }
  });

  test('HEAD of a route wants what its GET wants', async () => {
    for (const path of ['/api/v1/instances/', '/metrics']) {
      assert.equal((await house.ask({ method: 'HEAD', path }, null)).status, 401, path);
      assert.equal((await house.ask({ method: 'HEAD', path }, house.tokens.send)).status, 403, path);
      assert.equal((await house.ask({ method: 'HEAD', path }, house.tokens.read)).status, 200, path);
    }
  });

  test('the document of the API and its page need no key', async () => {
    await buildIfStale();
    for (const path of ['/openapi.json', '/docs/']) {
      assert.equal((await house.ask({ method: 'GET', path }, null)).status, 200, path);
    }
  });

  test('the OpenAPI document says what each operation wants', async () => {
    const { body } = await house.service.get<OpenApi>('/openapi.json');
    for (const { operationId, security } of operationsOf(body)) {
      const scopes = (security ?? []).map(({ api_key }) => api_key?.[0]);
      const rows = Object.entries(TABLE).filter(([row]) => row.split(' ')[0] === operationId);
      for (const [scope, column] of [
        ['read', 'read'],
        ['send', 'send'],
        ['instance', 'owner'],
      ] as const) {
        const is_enough = rows.some(([, cells]) => cells.split(/ +/)[COLUMNS.indexOf(column)] === 'yes');
        assert.equal(PUBLIC.includes(operationId) || scopes.includes(scope), is_enough, `${operationId}: ${scope}`);
      }
      assert.equal(scopes.includes('admin'), !PUBLIC.includes(operationId), operationId);
    }
  });
});

describe('the walk finds what is missing; control:', () => {
  const rows = (wrong: string[]): string[] => wrong.map((line) => line.split(':')[0] as string);

  test('without the check of ownership', async (t) => {
    const house = await startHouse(t);
    replacePrincipals(t, (principal) => ({ ...principal, owner_scope: null }));
    assert.deepEqual(rows(await house.walk(['other'])), [
      'register',
      'updateInstance',
      'updateInstance (hand over)',
      'deleteInstance',
      'heartbeat',
      'pull',
      'rotateSecret',
      'recover',
      'testWebhook',
      'joinMeeting',
      'leaveMeeting',
      'updateMembership',
      'sendMessage (as an agent)',
      'sendMessages (as an agent)',
      'retryDelivery',
      'dropDeliveries',
      'dropDeliveries (meeting)',
    ]);
  });

  test('without the limits of what is seen', async (t) => {
    const house = await startHouse(t);
    replacePrincipals(t, (principal) => ({ ...principal, visibility: null }));
    assert.deepEqual(rows(await house.walk(['other'])), [
      'listInstances',
      'listInstances (meeting)',
      'getInstance',
      'getInstanceHistory',
      'listDeliveries',
      'listDeliveries (meeting)',
      'getDelivery',
      'getDeliveryPush',
    ]);
  });

  test('without the limit to meetings', async (t) => {
    const house = await startHouse(t);
    replacePrincipals(t, (principal) => ({ ...principal, meeting_ids: null }));
    const wrong = await house.walk(['read.e', 'send.e', 'owner.e']);
    for (const row of [
      'joinMeeting',
      'leaveMeeting',
      'updateMembership',
      'listMessages',
      'sendMessage',
      'sendMessages',
      'listMeetingInstances',
      'metrics',
    ]) {
      assert.ok(rows(wrong).includes(row), row);
    }
  });

  test('without the check of portal links', async (t) => {
    const house = await startHouse(t);
    replacePrincipals(t, (principal) => ({ ...principal, is_portal_link: false }));
    assert.deepEqual(rows(await house.walk(['link'])), [
      'register',
      'deleteInstance',
      'pull',
      'rotateSecret',
      'joinMeeting',
      'leaveMeeting',
      'updateMembership',
      'sendMessage (as an agent)',
      'sendMessages (as an agent)',
      'dropDeliveries',
      'dropDeliveries (meeting)',
      'signIn',
      'signOut',
    ]);
  });

  test('without the scopes', async (t) => {
    const house = await startHouse(t);
    replacePrincipals(t, (principal) => ({ ...principal, scopes: ['admin'] }));
    const wrong = rows(await house.walk(['send']));
    for (const row of ['createKey', 'listMessages', 'getDelivery', 'metrics']) assert.ok(wrong.includes(row), row);
  });
});

test('a route that does not say who may call it cannot be made', async () => {
  const app = await routesOnly();
  const handler = async (): Promise<string> => '';
  assert.throws(() => app.get('/new/', {}, handler), /GET \/new\/ does not say who may call it/);
  // Control: the route that declares its access.
  app.get('/new/', { config: { access: ['admin'] } }, handler);
  await app.close();
});

describe('neither the response nor its time shows whether an object is hidden from the caller or does not exist:', () => {
  /** The calls of a key about an instance and a delivery. */
  const CALLS: Record<
    string,
    (store: Store, owner_scope: OwnerScope, instance_id: string, delivery_id: string) => Promise<unknown>
  > = {
    get: (store, owner_scope, id) => store.instances.get(id, { owner_scope, meeting_ids: [] }),
    patch: (store, owner_scope, id) => store.instances.patch(id, { is_active: false }, 1, owner_scope),
    heartbeat: (store, owner_scope, id) => store.instances.heartbeat(id, 1, owner_scope),
    rotateSecret: (store, owner_scope, id) => store.instances.rotateSecret(id, SECRET, 0, 1, owner_scope),
    join: (store, owner_scope, id) =>
      store.meetings.join('m', id, [], 1, owner_scope).catch(({ code }: Problem) => code),
    leave: (store, owner_scope, id) => store.meetings.leave('m', id, 1, owner_scope),
    getDelivery: (store, owner_scope, _, id) => store.deliveries.get(id, 1, { owner_scope, meeting_ids: [] }),
    retry: (store, owner_scope, _, id) => store.deliveries.retry(id, 1, 1, owner_scope),
    recover: (store, owner_scope, id) =>
      store.deliveries.recover({ instance_id: id, since_ms: 0, until_ms: 9 }, 10, 1, 1, owner_scope),
    remove: (store, owner_scope, id) => store.instances.remove(id, 10, 1, owner_scope),
  };
  const OWNER = { key_id: 'a', instance_id: null };
  const OTHER = { key_id: 'b', instance_id: null };
  const BOUND = { key_id: 'a', instance_id: 'another' };

  for (const [name, call] of Object.entries(CALLS)) {
    test(`${name} runs the same statements for both`, async (t) => {
      const store = openStoreHere();
      t.after(() => store.close());
      const registration = {
        instance_id: 'present',
        instance_name: 'n',
        agent_ids: ['a'],
        webhook_url: WEBHOOK_URL,
        webhook_headers: undefined,
        webhook_secret: undefined,
        new_secret: SECRET,
        success_statuses: undefined,
        owner_key_id: 'a',
      };
      await store.instances.register(registration, 1);
      await store.meetings.join('m', 'present', ['a'], 1);
      const of_a_person = { target_agents: null, origin: null, trace: null, idempotency: null };
      const message = { meeting_id: 'm', message: '{}', timestamp: '', ...of_a_person };
      const [accepted] = await store.messages.accept([{ ...message, wall_ms: 1, expires_at: 1 }]);
      assert.ok(accepted?.kind === 'accepted');

      const prepare = t.mock.method(Database.prototype, 'prepare');
      const traceOf = async (owner_scope: OwnerScope, instance_id: string, delivery_id: string) => {
        prepare.mock.resetCalls();
        const answer = await call(store, owner_scope, instance_id, delivery_id);
        return { answer, statements: prepare.mock.calls.map(({ arguments: [sql] }) => sql) };
      };
      const { delivery_id } = accepted.deliveries[0]!;
      for (const owner_scope of [OTHER, BOUND]) {
        const missing = await traceOf(owner_scope, 'missing', MISSING.delivery_id);
        assert.ok(missing.statements.length > 0);
        assert.deepEqual(await traceOf(owner_scope, 'present', delivery_id), missing);
      }
      // Control: the owner gets a different response.
      const missing = await traceOf(OWNER, 'missing', MISSING.delivery_id);
      assert.notDeepEqual(await traceOf(OWNER, 'present', delivery_id), missing);
    });
  }

  test('an unknown key and a wrong secret take the same comparisons, in constant time', async (t) => {
    const service = await startService(t);
    const { key_id } = await service.endOpenMode();
    const compare = t.mock.method(crypto, 'timingSafeEqual');
    syncBuiltinESMExports();
    t.after(() => {
      t.mock.restoreAll();
      syncBuiltinESMExports();
    });
    const comparisonsOf = async (id: string): Promise<number[]> => {
      compare.mock.resetCalls();
      const authorization = `Bearer ${makeToken(id, randomBytes(SECRET_BYTES))}`;
      const answer = await service.request('GET', '/api/v1/instances/', { headers: { authorization } });
      assertProblem(answer, 401, 'api_key_unknown');
      return compare.mock.calls.map(({ arguments: [digest] }) => digest.byteLength);
    };
    // One with the present token, and one with each earlier token that a key may have.
    const comparisons = Array.from({ length: 1 + EARLIER_MAX }, () => 32);
    assert.deepEqual(await comparisonsOf(key_id), comparisons);
    assert.deepEqual(await comparisonsOf(makeKeyId(randomBytes(ID_BYTES))), comparisons);
  });
});
