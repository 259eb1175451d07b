import { errorFromProxy, errorFromResponse } from './error.ts';
import { listen, type EventsOptions } from './events.ts';
import { assertNumberOption } from './number_option.ts';
import { TIMER_MS_MAX } from './pause.ts';
import { type PushInHand, Puller, type PullOptions } from './pull.ts';
import type { RawJson } from './raw_json.ts';
import {
  type RawFoundMessage,
  type RawMessage,
  rawMessage,
  rawMessages,
  type RawMessageTrace,
} from './raw_messages.ts';
import { assertHeader, bearer, type CallOptions, Requests, type RequestsOptions } from './requests.ts';
import { Gatherer } from './gatherer.ts';
import { itemOf, type MessageToSend, sendMany } from './sending_many.ts';
import { type Reply, type ReplyOptions, send, type SendingOptions, type SendOptions, sendReply } from './sending.ts';
import type {
  ApiKey,
  ApiKeyWithToken,
  AuditEntry,
  Backup,
  BackupProgress,
  Counts,
  CreateInviteInput,
  CreateKeyInput,
  Delivery,
  DeliveryPush,
  DeliveryWithAttempts,
  Demo,
  Diagnosis,
  DropDeliveriesInput,
  DroppedDeliveries,
  EventsQuery,
  ExplainQuery,
  Explanation,
  FeedEvent,
  FindMessagesQuery,
  FoundMessage,
  GetHistoryQuery,
  GetMessageQuery,
  Instance,
  InstanceHistory,
  Invite,
  InviteWithLink,
  JoinMeetingInput,
  LeaveMeetingInput,
  LeftMeeting,
  ListAuditQuery,
  ListDeliveriesQuery,
  ListInstancesQuery,
  ListInvitesQuery,
  ListMeetingInstancesQuery,
  ListMeetingsQuery,
  ListMessagesQuery,
  ListSessionsQuery,
  Meeting,
  MeetingInstance,
  Membership,
  Message,
  MessagePage,
  MessageTrace,
  OpenSession,
  Page,
  PageQuery,
  Pulled,
  PullInput,
  Recovered,
  RecoverInput,
  RedeemedInvite,
  Reencryption,
  RegisteredInstance,
  RegisterInput,
  RotatedSecret,
  PortalLink,
  PortalLinkInput,
  RotateKeyInput,
  RotateSecretInput,
  SearchPage,
  SentMessage,
  ServiceHistory,
  ServiceNode,
  Session,
  UpdateInstanceInput,
  UpdateMeetingInput,
  UpdateMembershipInput,
} from './types.ts';

/** How much longer than `wait_s` the response to a pull may take. */
const PULL_GRACE_MS = 10_000;

/** The service gives a slow machine 30 s to respond to a test. */
const TEST_TIMEOUT_MS = 40_000;

/** An instance is deleted in one call. With a million pending deliveries that takes some 10 s. */
const DELETE_TIMEOUT_MS = 60_000;

export interface ConvokeClientOptions extends RequestsOptions, SendingOptions {}

/**
 * The API of Convoke, one method per operation. A call that fails throws {@link ConvokeError}; a wrong argument throws
 * TypeError or RangeError.
 */
export class ConvokeClient {
  readonly base_url: string;
  readonly #requests: Requests;
  readonly #sending: SendingOptions;
  /** Null when each message is a request of its own. */
  readonly #gatherer: Gatherer | null;

  /**
   * @throws TypeError when base_url is not an http or https URL, a number option is no number, or api_key cannot be in a
   *   header
   * @throws RangeError when a number option is NaN or out of its range
   */
  constructor(options: ConvokeClientOptions) {
    this.#requests = new Requests(options);
    this.base_url = this.#requests.base_url;
    this.#sending = options;
    const { gather_ms } = options;
    assertNumberOption('gather_ms', gather_ms, 0, TIMER_MS_MAX);
    this.#gatherer =
      gather_ms === undefined ? null : new Gatherer(gather_ms, (items) => sendMany(this.#requests, options, items));
  }

  /** Creates the instance or overwrites it, and switches it on. Only this response contains the `webhook_secret`. */
  register(input: RegisterInput, options?: CallOptions): Promise<RegisteredInstance> {
    return this.#requests.call('POST', ['instances', 'register'], { ...options, body: input }, 'instance_id');
  }

  listInstances(query: ListInstancesQuery = {}, options?: CallOptions): Promise<SearchPage<Instance>> {
    return this.#requests.call('GET', ['instances'], { ...options, query }, 'data');
  }

  getInstance(instance_id: string, options?: CallOptions): Promise<Instance> {
    return this.#requests.call('GET', ['instances', instance_id], { ...options }, 'instance_id');
  }

  /** The results of the pushes to an instance in the last day, in steps of ten minutes. */
  getInstanceHistory(instance_id: string, options?: CallOptions): Promise<InstanceHistory> {
    return this.#requests.call('GET', ['instances', instance_id, 'history'], { ...options }, 'step_s');
  }

  updateInstance(instance_id: string, changes: UpdateInstanceInput, options?: CallOptions): Promise<Instance> {
    return this.#requests.call('PATCH', ['instances', instance_id], { ...options, body: changes }, 'instance_id');
  }

  /** Deletes an instance and cancels its pending deliveries. Waits for up to 60 s: they may be a million. */
  deleteInstance(instance_id: string, options?: CallOptions): Promise<void> {
    const timeout_ms = DELETE_TIMEOUT_MS;
    return this.#requests.call('DELETE', ['instances', instance_id], { ...options, timeout_ms }, null);
  }

  /** Reports that the instance is alive: ends its back-off, so that its backlog is sent at once. */
  heartbeat(instance_id: string, options?: CallOptions): Promise<Instance> {
    return this.#requests.call('POST', ['instances', instance_id, 'heartbeat'], { ...options }, 'instance_id');
  }

  /** Makes a new webhook secret. Until the overlap ends, pushes are signed with both secrets. */
  rotateSecret(instance_id: string, input: RotateSecretInput = {}, options?: CallOptions): Promise<RotatedSecret> {
    return this.#requests.call(
      'POST',
      ['instances', instance_id, 'rotate-secret'],
      { ...options, body: input },
      'webhook_secret',
    );
  }

  /**
   * Queues deliveries of the instance again: those that failed in a period, or the failed and cancelled ones of
   * `delivery_ids`. With `dry_run` it only counts them. One call may do only a part: see {@link recovering}.
   */
  recover(instance_id: string, input: RecoverInput, options?: CallOptions): Promise<Recovered> {
    return this.#requests.call('POST', ['instances', instance_id, 'recover'], { ...options, body: input }, 'recovered');
  }

  /**
   * As {@link recover}, part by part, `limit` deliveries in each, until none is left; `delivery_ids` are one part.
   * Yields after each part how many were queued so far. To cancel, leave the loop. Deliveries that are queued already
   * are still sent.
   *
   *     for await (const queued of client.recovering('laptop-anna', { since })) console.log(queued);
   */
  async *recovering(
    instance_id: string,
    { limit = 1_000, ...input }: RecoverInput,
    options?: CallOptions,
  ): AsyncGenerator<number, void, undefined> {
    let queued = 0;
    let of = input;
    for (let done = false; !done;) {
      const part = await this.recover(instance_id, { ...of, limit }, options);
      queued += part.recovered;
      done = part.done;
      if (part.until !== null) of = { ...of, until: part.until };
      yield queued;
    }
  }

  /**
   * The pushes of an instance with the transport `pull`, as they arrive. Each of them needs a result. When the
   * connection is lost, the client connects again. The iteration throws when the service refuses the connection for
   * good.
   *
   *     for await (const push of client.pull('laptop-anna')) {
   *       await handle(push.message);
   *       push.respond({ status_code: 200 });
   *     }
   *
   * @throws RangeError at once, when the concurrency is no whole number of 1 or more
   */
  pull(instance_id: string, options: PullOptions = {}): AsyncGenerator<PushInHand, void, undefined> {
    return new Puller(this.#requests, instance_id, options).pushes();
  }

  /**
   * One request of {@link pull}, for programs that keep the pushes and their results in order themselves. A request that
   * waits is not made again when the service is overloaded.
   */
  async pullOnce(
    instance_id: string,
    { wait_s = 30, ...input }: PullInput = {},
    options?: CallOptions,
  ): Promise<Pulled> {
    // The service checks wait_s too. But with NaN this request would end before the service can respond.
    assertNumberOption('wait_s', wait_s, 0);
    const timeout_ms = wait_s * 1000 + PULL_GRACE_MS;
    const body = { ...input, wait_s };
    // A wait that is made again would take longer than the caller allows.
    const call = { ...options, body, timeout_ms, ...(wait_s > 0 && { attempts_max: 1 }) };
    return this.#requests.call('POST', ['instances', instance_id, 'pull'], call, 'pushes');
  }

  /** Fails with `instance_does_not_exist` when the instance is not registered. */
  joinMeeting(input: JoinMeetingInput, options?: CallOptions): Promise<Membership> {
    return this.#requests.call('POST', ['instances', 'join-meeting'], { ...options, body: input }, 'meeting_id');
  }

  /**
   * Changes the agents or the rules of an instance in a meeting. Another join would do that too, but would also bring
   * back an instance that has left. Fails with `membership_does_not_exist` when the instance is not in the meeting.
   */
  updateMembership(
    meeting_id: string | number,
    instance_id: string,
    changes: UpdateMembershipInput,
    options?: CallOptions,
  ): Promise<Membership> {
    return this.#requests.call(
      'PATCH',
      ['meetings', meeting_id, 'instances', instance_id],
      {
        ...options,
        body: changes,
      },
      'meeting_id',
    );
  }

  /** Not an error when the instance is not in the meeting: then `left_at` is null. */
  leaveMeeting(input: LeaveMeetingInput, options?: CallOptions): Promise<LeftMeeting> {
    return this.#requests.call('POST', ['instances', 'leave-meeting'], { ...options, body: input }, 'left_at');
  }

  /**
   * Sends one signed sample push and returns the result of each stage. A failed push is no error. Waits for up to 40 s,
   * because the machine may take as long as for an attempt, 30 s at most.
   */
  testWebhook(instance_id: string, options?: CallOptions): Promise<Diagnosis> {
    return this.#requests.call(
      'POST',
      ['instances', 'webhook-test'],
      {
        ...options,
        body: { instance_id },
        timeout_ms: TEST_TIMEOUT_MS,
      },
      'success',
    );
  }

  /** How many instances are in each state, and how many deliveries are pending. Counts only what the key may see. */
  getCounts(options?: CallOptions): Promise<Counts> {
    return this.#requests.call('GET', ['counts'], { ...options }, 'instances');
  }

  /** The counts of the service in the last five minutes, hour, or day, step by step. */
  getHistory(query: GetHistoryQuery = {}, options?: CallOptions): Promise<ServiceHistory> {
    return this.#requests.call('GET', ['history'], { ...options, query }, 'step_s');
  }

  /** The nodes that share the store, in the order in which they joined. */
  listNodes(options?: CallOptions): Promise<{ data: ServiceNode[] }> {
    return this.#requests.call('GET', ['nodes'], { ...options }, 'data');
  }

  listMeetings(query: ListMeetingsQuery = {}, options?: CallOptions): Promise<SearchPage<Meeting>> {
    return this.#requests.call('GET', ['meetings'], { ...options, query }, 'data');
  }

  getMeeting(meeting_id: string | number, options?: CallOptions): Promise<Meeting> {
    return this.#requests.call('GET', ['meetings', meeting_id], { ...options }, 'meeting_id');
  }

  /**
   * Pauses a meeting, resumes it, or sets the limits of its loop guard. After a resume the waiting deliveries follow in
   * order. For admins.
   */
  updateMeeting(meeting_id: string | number, changes: UpdateMeetingInput, options?: CallOptions): Promise<Meeting> {
    return this.#requests.call('PATCH', ['meetings', meeting_id], { ...options, body: changes }, 'meeting_id');
  }

  listMeetingInstances(
    meeting_id: string | number,
    query: ListMeetingInstancesQuery = {},
    options?: CallOptions,
  ): Promise<Page<MeetingInstance>> {
    return this.#requests.call('GET', ['meetings', meeting_id, 'instances'], { ...options, query }, 'data');
  }

  /** Who would get a message that is sent now, and why the others would not. Sends nothing. */
  explain(meeting_id: string | number, query: ExplainQuery = {}, options?: CallOptions): Promise<Page<Explanation>> {
    return this.#requests.call('GET', ['meetings', meeting_id, 'explain'], { ...options, query }, 'data');
  }

  /**
   * Sends a message in a meeting. When it resolves, the message is stored and its pushes are queued.
   *
   * Tries again when Convoke cannot be reached, does not respond in time, or responds 429, 502, 503 or 504. Each try has
   * the same idempotency key, so the message is stored once. The pause is the Retry-After of the response; without it,
   * each pause is twice the previous one. Gives up when the Retry-After is longer than 30 s.
   */
  async sendMessage(
    meeting_id: string | number,
    message: object | RawJson,
    options: SendOptions = {},
  ): Promise<SentMessage> {
    const { signal, ...given } = options;
    if (this.#gatherer !== null) return this.#gatherer.send(itemOf({ ...given, meeting_id, message }), signal);
    return send(this.#requests, this.#sending, meeting_id, message, options);
  }

  /**
   * Sends messages of one meeting or of several, up to 500 in a request: in each meeting they are stored in the order
   * of the list. Resolves with a result for each, like `Promise.allSettled`; a reason is a {@link ConvokeError}. Tries
   * again as sendMessage does.
   *
   *     const results = await client.sendMany([{ meeting_id: 'standup-42', message: { content: 'Good morning' } }]);
   *
   * @throws TypeError when a message is not an object
   */
  async sendMany(
    messages: readonly MessageToSend[],
    options?: CallOptions,
  ): Promise<PromiseSettledResult<SentMessage>[]> {
    return sendMany(this.#requests, this.#sending, messages.map(itemOf), options);
  }

  /**
   * Replies to an earlier push, with its `reply_token` and without a key. The reply is a message in the meeting of that
   * push, from one of the agents that the push was for. Tries again as sendMessage does.
   *
   * @param reply a text, which becomes `{ content: text }`, or a message with the agent that says it
   */
  sendReply(reply_token: string, reply: Reply, options: ReplyOptions = {}): Promise<SentMessage> {
    return sendReply(this.#requests, this.#sending, reply_token, reply, options);
  }

  /** The latest messages, or those after or before a `seq`; always in the order of `seq`. */
  listMessages(
    meeting_id: string | number,
    query: ListMessagesQuery = {},
    options?: CallOptions,
  ): Promise<MessagePage> {
    return this.#requests.call('GET', ['meetings', meeting_id, 'messages'], { ...options, query }, 'data');
  }

  /** As {@link listMessages}, with the JSON of each message as it was written: no digit of a number is lost. */
  listRawMessages(
    meeting_id: string | number,
    query: ListMessagesQuery = {},
    options: CallOptions = {},
  ): Promise<{ data: RawMessage[]; has_more: boolean }> {
    return this.#requests.call(
      'GET',
      ['meetings', meeting_id, 'messages'],
      { ...options, query },
      rawMessages<{ data: RawMessage[]; has_more: boolean }>,
    );
  }

  /** One message, the chain that led to it, its answers, and each of its deliveries with its outcome. */
  getMessage(message_id: string, query: GetMessageQuery = {}, options?: CallOptions): Promise<MessageTrace> {
    return this.#requests.call('GET', ['messages', message_id], { ...options, query }, 'message_id');
  }

  /** As {@link getMessage}, with the JSON of the message as it was written: no digit of a number is lost. */
  getRawMessage(message_id: string, query: GetMessageQuery = {}, options?: CallOptions): Promise<RawMessageTrace> {
    return this.#requests.call('GET', ['messages', message_id], { ...options, query }, rawMessage<RawMessageTrace>);
  }

  /** Every message of a meeting after `after_seq` (0, the beginning, when absent), in order, page after page. */
  async *allMessages(
    meeting_id: string | number,
    query: { after_seq?: number | undefined; limit?: number | undefined } = {},
    options?: CallOptions,
  ): AsyncGenerator<Message, void, undefined> {
    let after_seq = query.after_seq ?? 0;
    for (;;) {
      const page = await this.listMessages(meeting_id, { ...query, after_seq }, options);
      yield* page.data;
      const last = page.data.at(-1);
      if (!page.has_more || last === undefined) return;
      after_seq = last.seq;
    }
  }

  /**
   * Finds messages by an `id` (of a message or of a delivery), by their number in a meeting, or by their text; the
   * newest first. A search by text reads the messages: `pages` and `all` go on until it has read all of them.
   */
  findMessages(query: FindMessagesQuery = {}, options?: CallOptions): Promise<SearchPage<FoundMessage>> {
    return this.#requests.call('GET', ['messages'], { ...options, query }, 'data');
  }

  /** As {@link findMessages}, with the JSON of each message as it was written: no digit of a number is lost. */
  findRawMessages(query: FindMessagesQuery = {}, options?: CallOptions): Promise<SearchPage<RawFoundMessage>> {
    return this.#requests.call('GET', ['messages'], { ...options, query }, rawMessages<SearchPage<RawFoundMessage>>);
  }

  /** The deliveries, the newest first. */
  listDeliveries(query: ListDeliveriesQuery = {}, options?: CallOptions): Promise<SearchPage<Delivery>> {
    return this.#requests.call('GET', ['deliveries'], { ...options, query }, 'data');
  }

  /** One delivery with every attempt made for it. */
  getDelivery(delivery_id: string, options?: CallOptions): Promise<DeliveryWithAttempts> {
    return this.#requests.call('GET', ['deliveries', delivery_id], { ...options }, 'delivery_id');
  }

  /** The request that an attempt of the delivery makes, without its secrets: see {@link curlOf}. */
  getDeliveryPush(delivery_id: string, options?: CallOptions): Promise<DeliveryPush> {
    return this.#requests.call('GET', ['deliveries', delivery_id, 'push'], { ...options }, 'delivery_id');
  }

  /**
   * Queues a failed or cancelled delivery again, due at once, under the same webhook-id. A pending delivery becomes due
   * at once. Fails with `delivery_not_retryable` after a success, or when the instance was deleted.
   */
  retryDelivery(delivery_id: string, options?: CallOptions): Promise<Delivery> {
    return this.#requests.call('POST', ['deliveries', delivery_id, 'retry'], { ...options }, 'delivery_id');
  }

  /**
   * Cancels the waiting deliveries of an instance, or in a meeting; with `dry_run` it only counts them. One call may do
   * only a part: see {@link dropping}.
   */
  dropDeliveries(input: DropDeliveriesInput, options?: CallOptions): Promise<DroppedDeliveries> {
    return this.#requests.call('POST', ['deliveries', 'drop'], { ...options, body: input }, 'deliveries');
  }

  /**
   * As {@link dropDeliveries}, part by part, until none is left. Yields after each part how many were dropped so far.
   * Messages that are sent after the first part keep their deliveries.
   */
  async *dropping(input: DropDeliveriesInput, options?: CallOptions): AsyncGenerator<number, void, undefined> {
    let dropped = 0;
    let of = input;
    for (let done = false; !done;) {
      const part = await this.dropDeliveries(of, options);
      dropped += part.deliveries;
      done = part.done;
      if (part.up_to !== null) of = { ...of, up_to: part.up_to };
      yield dropped;
    }
  }

  /**
   * Changes the data key that encrypts stored secrets. One call works for some seconds; call again while `done` is
   * false.
   */
  reencrypt(options?: CallOptions): Promise<Reencryption> {
    return this.#requests.call('POST', ['encryption', 'reencrypt'], { ...options }, 'done');
  }

  /**
   * Begins a copy of all data. It contains everything that was stored before this call. One copy is made at a time. For
   * admins.
   */
  beginBackup(options?: CallOptions): Promise<Backup> {
    return this.#requests.call('POST', ['backups'], { ...options }, 'backup_id');
  }

  /**
   * The progress of the copy, or the complete copy itself, once. No timeout applies while the copy is read: only
   * `signal` ends the reading. Fails with `backup_does_not_exist` when the copy was fetched already, or when no call
   * asked for it for a minute.
   */
  fetchBackup(
    backup_id: string,
    options: CallOptions = {},
  ): Promise<BackupProgress | ReadableStream<Uint8Array<ArrayBuffer>>> {
    return this.#requests.stream<BackupProgress>(
      ['backups', backup_id],
      'application/octet-stream',
      options,
      'pages_total',
    );
  }

  /** Makes a key. Only this response contains the `token`. The first key must have the scope `admin`. */
  createKey(input: CreateKeyInput, options?: CallOptions): Promise<ApiKeyWithToken> {
    return this.#requests.call('POST', ['keys'], { ...options, body: input }, 'key_id');
  }

  /** All keys, revoked ones included; the oldest first. */
  listKeys(query: PageQuery = {}, options?: CallOptions): Promise<Page<ApiKey>> {
    return this.#requests.call('GET', ['keys'], { ...options, query }, 'data');
  }

  getKey(key_id: string, options?: CallOptions): Promise<ApiKey> {
    return this.#requests.call('GET', ['keys', key_id], { ...options }, 'key_id');
  }

  /**
   * Revokes a key: from the response on, requests with it are refused. Fails with `last_admin_key` when nobody could
   * make keys without it.
   */
  revokeKey(key_id: string, options?: CallOptions): Promise<void> {
    return this.#requests.call('DELETE', ['keys', key_id], { ...options }, null);
  }

  /** Makes a new token. Until the overlap ends, the old token is accepted too. */
  rotateKey(key_id: string, input: RotateKeyInput = {}, options?: CallOptions): Promise<ApiKeyWithToken> {
    return this.#requests.call('POST', ['keys', key_id, 'rotate'], { ...options, body: input }, 'key_id');
  }

  /**
   * Makes a link to a page that shows the instances of a key. The link is valid for an hour at most. Another product
   * may show the page in a frame. Anybody who has the link may use it. For admins. Fails with `not_permitted` for an
   * admin key, and for a key without the scope `instance`.
   */
  createPortalLink(key_id: string, input: PortalLinkInput = {}, options?: CallOptions): Promise<PortalLink> {
    return this.#requests.call('POST', ['keys', key_id, 'portal-link'], { ...options, body: input }, 'link');
  }

  /**
   * Makes a one-time link that lets a machine into meetings. Only this response contains the `link`. The link begins
   * with the public_url of the service, or else with base_url. Only admins may make, list and revoke invites.
   */
  createInvite(input: CreateInviteInput, options?: CallOptions): Promise<InviteWithLink> {
    return this.#requests.call('POST', ['invites'], { ...options, body: input }, (text) => {
      const made = JSON.parse(text) as InviteWithLink;
      const { pathname } = new URL(made.link);
      // Behind a proxy the service may not know its own address, but this client does.
      return made.is_public_url ? made : { ...made, link: `${this.base_url}${pathname}` };
    });
  }

  /** The invites, the latest first, without their links. An invite stays in the list for 30 days after it expired. */
  listInvites(query: ListInvitesQuery = {}, options?: CallOptions): Promise<Page<Invite>> {
    return this.#requests.call('GET', ['invites'], { ...options, query }, 'data');
  }

  /**
   * Revokes an invite: once the response has come, its link is refused. Fails with `invite_redeemed` when a machine has
   * redeemed it; then revoke the key of the invite.
   */
  revokeInvite(invite_id: string, options?: CallOptions): Promise<void> {
    return this.#requests.call('DELETE', ['invites', invite_id], { ...options }, null);
  }

  /**
   * Redeems the link of an invite, once, and returns a key. Needs no key: make the client with the part of the link
   * before `/invite/` as `base_url`. When the response is lost, the link cannot be redeemed again.
   *
   * @throws ConvokeError `invite_does_not_exist`; `invite_ended` when the invite was redeemed or revoked, or has
   * expired
   * @throws TypeError when `link` is not a link of this service
   */
  async redeemInvite(link: string, options: CallOptions = {}): Promise<RedeemedInvite> {
    const beginning = `${this.base_url}/invite/`;
    // base_url has its host in small letters and no default port. A link may be written in another way.
    const { origin, pathname } = URL.canParse(link) ? new URL(link) : { origin: '', pathname: '' };
    const url = `${origin}${pathname}`;
    if (!url.startsWith(beginning)) throw new TypeError(`a link of an invite begins with ${beginning}`);
    const secret = url.slice(beginning.length).replace(/\/$/, '');
    return this.#requests.call('POST', ['invites', 'redeem'], { ...options, body: { secret } }, 'api_key');
  }

  /**
   * The audit log: who changed what, from where and when. The newest entry is first unless `order` says otherwise. For
   * admins. A page may be empty although more follow: `pages` and `all` go on until every entry was read.
   */
  listAudit(query: ListAuditQuery = {}, options?: CallOptions): Promise<SearchPage<AuditEntry>> {
    return this.#requests.call('GET', ['audit'], { ...options, query }, 'data');
  }

  /** Whether the demo runs. Only admins may ask this, and start or stop the demo. */
  demo(options?: CallOptions): Promise<Demo> {
    return this.#requests.call('GET', ['demo'], { ...options }, 'state');
  }

  /**
   * Lets two agents inside the service talk in a meeting. Fails with `demo_not_possible` when no push may reach them.
   */
  startDemo(options?: CallOptions): Promise<Demo> {
    return this.#requests.call('POST', ['demo'], { ...options }, 'state');
  }

  /** Stops the demo and removes its instances. */
  stopDemo(options?: CallOptions): Promise<void> {
    return this.#requests.call('DELETE', ['demo'], { ...options }, null);
  }

  /**
   * Who is signed in. A page of Convoke itself calls this first: when the state is `signed_out`, the page asks for a
   * key. The client remembers the token that protects a session, and sends it with every request.
   */
  async session(options?: CallOptions): Promise<Session> {
    return this.#remember(await this.#requests.call('GET', ['session'], { ...options }, 'state'));
  }

  /** Exchanges a key for a session. In a browser only: the browser keeps the cookie and sends it. */
  async signIn(api_key: string, options?: CallOptions): Promise<Session> {
    const headers = { authorization: bearer(api_key) };
    return this.#remember(await this.#requests.call('POST', ['session'], { ...options, headers }, 'state'));
  }

  /** Signs in with the token after `#sign-in=` in a link that `convoke serve` printed. */
  async signInByLink(token: string, options?: CallOptions): Promise<Session> {
    return this.#remember(
      await this.#requests.call('POST', ['session', 'link'], { ...options, body: { token } }, 'state'),
    );
  }

  /** Ends the session. */
  async signOut(options?: CallOptions): Promise<void> {
    await this.#requests.call('DELETE', ['session'], { ...options }, null);
    this.#requests.csrf_token = null;
  }

  /** All sessions of browsers, the latest first. For admins. */
  listSessions(query: ListSessionsQuery = {}, options?: CallOptions): Promise<Page<OpenSession>> {
    return this.#requests.call('GET', ['sessions'], { ...options, query }, 'data');
  }

  /** Ends any session, on every node within a second. For admins. */
  endSession(session_id: string, options?: CallOptions): Promise<void> {
    return this.#requests.call('DELETE', ['sessions', session_id], { ...options }, null);
  }

  #remember(session: Session): Session {
    this.#requests.csrf_token = session.csrf_token;
    return session;
  }

  /**
   * Events as they happen. When the connection is lost, the SDK connects again and continues after the last event. If
   * events are missing, it yields an event `gap`. The iteration ends when `signal` is aborted, and throws when the
   * service refuses a connection for good.
   *
   *     for await (const event of client.events({ meeting_id: 'standup' })) …
   *
   * @throws TypeError at once, when last_event_id cannot be in a header
   */
  events(query: EventsQuery = {}, options: EventsOptions = {}): AsyncGenerator<FeedEvent, void, undefined> {
    const url = this.#requests.urlOf(['events'], { ...query, last_event_id: undefined });
    const headers = this.#requests.headersWith({ accept: 'text/event-stream' });
    if (query.last_event_id !== undefined) assertHeader('last_event_id', query.last_event_id);
    return listen(this.#requests.fetch, url, headers, query.last_event_id ?? null, options);
  }

  /** The metrics of this node, as Prometheus text. */
  metrics(options: CallOptions = {}): Promise<string> {
    const url = `${this.base_url}/metrics`;
    return this.#requests.ask('GET', url, options, (response, text) => {
      if (!response.ok) throw errorFromResponse(response, text, url);
      if (!text.startsWith('# HELP ')) throw errorFromProxy(response, url);
      return text;
    });
  }
}
