/**
 * A store in maps that keeps the contract of the store. It has no SQL and no file, so that a thousand worlds can be
 * simulated in a second. Each method is one transaction. test/simulation/model_store.test.ts compares this store with
 * SQLite.
 */
import { fullAttemptsText } from '../../src/domain/attempts_text.ts';
import { mayQueueAgain, type WaitingFor } from '../../src/domain/delivery.ts';
import { type ClockNote, type Hold, NO_HOLD } from '../../src/domain/clock_hold.ts';
import { IdCodec, NumberSource } from '../../src/domain/id.ts';
import {
  ACK_TIMEOUT_S,
  type Connection,
  healthOf,
  type Instance,
  isSwitchedOn,
  NO_HEALTH,
} from '../../src/domain/instance.ts';
import { TIMEOUT_S } from '../../src/domain/runtimes/runtimes.ts';
import { agentsToNotify } from '../../src/domain/agents_to_notify.ts';
import { hasRules, type MemberRules, missedOf, NO_RULES } from '../../src/domain/catch_up.ts';
import { hopsOf, type MessageOrigin } from '../../src/domain/message_origin.ts';
import type { Attempt } from '../../src/domain/outcome.ts';
import { partitionOf } from '../../src/domain/partition.ts';
import { isSameOrigin } from '../../src/domain/webhook_url.ts';
import { Problem } from '../../src/domain/problem.ts';
import { assertOverlapLeft, earlierAfter } from '../../src/domain/rotation.ts';
import { decodeCursor, pageOf } from '../../src/store/rows/page.ts';
import { wasPushed } from '../../src/store/rows/lane_heads.ts';
import { lanesToExpire } from '../../src/store/rows/deliveries.ts';
import { EndedInLanes } from '../../src/store/rows/ended_in_lanes.ts';
import type { Operations } from '../../src/store/sqlite/operations.ts';
import {
  type Accepted,
  type AcceptedMessage,
  EXCERPT_CHARS,
  IDEMPOTENCY_MS,
  type MessageBrief,
  type MessageHead,
  type NewMessage,
} from '../../src/store/contract/messages.ts';
import type {
  AsidePlace,
  DeliverySettlement,
  LaneKey,
  QueuedDelivery,
  Recovery,
  Waiting,
} from '../../src/store/contract/deliveries.ts';
import type { InstanceCounts, InstanceRow } from '../../src/store/contract/instances.ts';
import {
  type MeetingFilter,
  type MeetingRow,
  type MeetingSettings,
  type Membership,
  NO_SETTINGS,
} from '../../src/store/contract/meetings.ts';
import type { Page, PageRequest } from '../../src/store/contract/page.ts';
import { isUnset, patched } from '../../src/store/rows/meeting_settings.ts';
import type { StoredRange } from '../../src/store/contract/cluster.ts';

/**
 * The operations of the thread of SQLite, without those on its file, and without keys and searches, which the engine
 * does not use.
 */
export type StoreOperations = Pick<Operations, 'instances' | 'meetings'> & {
  messages: Omit<Operations['messages'], 'ofDelivery' | 'search'>;
  deliveries: Omit<Operations['deliveries'], 'search'>;
};

interface Meeting {
  meeting_id: string;
  last_seq: number;
  created_at: number;
  last_activity_at: number;
}

interface Message {
  message_no: number;
  message_id: string;
  meeting_id: string;
  seq: number;
  accepted_at: number;
  deliveries_queued: number;
  target_agents: string[] | null;
  timestamp: string;
  trace: string | null;
  origin: MessageOrigin | null;
  message: string;
}

export interface ModelDelivery extends Omit<DeliverySettlement, 'attempts' | 'epoch'> {
  attempts: Attempt[];
  delivery_no: number;
  message: Message;
  instance_id: string;
  target_agents: string;
  created_at: number;
}

const LANE_PAGE_CHARS_MAX = 256 << 10;
const EXPIRED_AT_ONCE = 1_000;

export class ModelStore implements StoreOperations {
  readonly #instances = new Map<string, Instance>();
  /** The number since which each instance exists. */
  readonly #first_nos = new Map<string, number>();
  /** The connections of machines that pull. The engine does not use them. */
  readonly #connections = new Map<string, Connection>();
  readonly #meetings = new Map<string, Meeting>();
  readonly #settings = new Map<string, MeetingSettings>();
  readonly #memberships = new Map<string, Map<string, Membership>>();
  readonly #messages = new Map<string, Message>();
  readonly #deliveries = new Map<string, ModelDelivery>();
  readonly #of_instance = new Map<string, ModelDelivery[]>();
  readonly #keys = new Map<string, { fingerprint: string; result: AcceptedMessage; created_at: number }>();
  #noted: ClockNote | null = null;
  readonly #numbers: NumberSource;
  readonly #ids = new IdCodec('modelled');

  constructor(now: () => number) {
    this.#numbers = new NumberSource(now, 0);
  }

  /**
   * Copies everything, and returns a function that restores the copy. Even after that no number is given a second time.
   */
  copy(): () => void {
    const instances = new Map(this.#instances);
    const first_nos = new Map(this.#first_nos);
    const meetings = [...this.#meetings].map(([id, meeting]) => [id, { ...meeting }] as const);
    const settings = new Map(this.#settings);
    const memberships = [...this.#memberships].map(
      ([id, members]) => [id, new Map([...members].map(([of, membership]) => [of, { ...membership }]))] as const,
    );
    const messages = new Map(this.#messages);
    const deliveries = [...this.#deliveries].map(([id, row]) => [id, { ...row }] as const);
    const keys = new Map(this.#keys);
    return () => {
      replace(this.#instances, instances);
      replace(this.#first_nos, first_nos);
      replace(this.#meetings, meetings);
      replace(this.#settings, settings);
      replace(this.#memberships, memberships);
      replace(this.#messages, messages);
      replace(this.#deliveries, deliveries);
      replace(this.#keys, keys);
      replace(
        this.#of_instance,
        Map.groupBy(this.#deliveries.values(), ({ instance_id }) => instance_id),
      );
    };
  }

  #rowOf(instance: Instance): InstanceRow {
    const pending_deliveries = this.#pendingOf(instance.instance_id).length;
    const connection = this.#connections.get(instance.instance_id) ?? null;
    return { ...instance, owner_key_id: null, pending_deliveries, connection };
  }

  #get(instance_id: string): InstanceRow | null {
    const instance = this.#instances.get(instance_id);
    return instance === undefined ? null : this.#rowOf(instance);
  }

  #pendingOf(instance_id: string): ModelDelivery[] {
    return (this.#of_instance.get(instance_id) ?? []).filter(({ state }) => state === 'pending');
  }

  #change(instance_id: string, change: Partial<Instance>): InstanceRow | null {
    const instance = this.#instances.get(instance_id);
    if (instance === undefined) return null;
    this.#instances.set(instance_id, { ...instance, ...change });
    return this.#get(instance_id);
  }

  #meeting(meeting_id: string, wall_ms: number): Meeting {
    let meeting = this.#meetings.get(meeting_id);
    if (meeting === undefined) {
      meeting = { meeting_id, last_seq: 0, created_at: wall_ms, last_activity_at: wall_ms };
      this.#meetings.set(meeting_id, meeting);
    }
    meeting.last_activity_at = wall_ms;
    return meeting;
  }

  readonly instances: StoreOperations['instances'] = {
    register: (registration, wall_ms) => {
      const { instance_id, webhook_url, webhook_secret, webhook_headers, success_statuses } = registration;
      const { instance_name, agent_ids, transport = 'webhook', ack_timeout_s } = registration;
      const previous = this.#instances.get(instance_id);
      const same_url = previous?.webhook_url === webhook_url && previous.transport === transport;
      const goes_elsewhere =
        previous !== undefined &&
        !(previous.transport === transport && isSameOrigin(previous.webhook_url, webhook_url));
      const is_dropping = goes_elsewhere && webhook_headers === undefined;
      const dropped_header_names = is_dropping ? Object.keys(previous.webhook_headers) : [];
      const secret = webhook_secret ?? previous?.webhook_secret ?? registration.new_secret;
      const ends_runtime = !registration.runtime && previous !== undefined && previous.runtime !== null;
      const instance: Instance = {
        ...(previous ?? {
          ...NO_HEALTH,
          has_rules: false,
          earlier_secrets: [],
          created_at: wall_ms,
          owner_key_id: null,
        }),
        ...(previous !== undefined &&
          !same_url && { consecutive_failures: 0, health_since: null, last_success_at: null, last_failure: null }),
        ...(previous !== undefined && secret !== previous.webhook_secret && { earlier_secrets: [] }),
        instance_id,
        instance_name,
        agent_ids,
        transport,
        ack_timeout_s: ack_timeout_s ?? previous?.ack_timeout_s ?? ACK_TIMEOUT_S,
        timeout_s: registration.timeout_s ?? (ends_runtime ? TIMEOUT_S : (previous?.timeout_s ?? TIMEOUT_S)),
        runtime: registration.runtime ?? null,
        lease_until: registration.lease_until ?? null,
        webhook_url,
        webhook_headers: webhook_headers ?? (goes_elsewhere ? {} : previous?.webhook_headers) ?? {},
        webhook_secret: secret,
        success_statuses: success_statuses ?? previous?.success_statuses ?? '200',
        replies: registration.replies ?? previous?.replies ?? false,
        webhook_enabled: true,
        is_active: true,
        backoff_step: 0,
        backoff_until: null,
        last_seen_at: wall_ms,
        updated_at: wall_ms,
      };
      this.#instances.set(instance_id, instance);
      // Takes a number, so that all deliveries of the new instance have higher numbers.
      if (previous === undefined) this.#first_nos.set(instance_id, this.#numbers.take(1));
      return { created: previous === undefined, instance: this.#rowOf(instance), dropped_header_names };
    },
    // No world has subscriptions.
    endedLeases: () => [],
    get: (instance_id) => this.#get(instance_id),
    find: (instance_id) => this.#instances.get(instance_id) ?? null,
    load: (instance_ids) => {
      const wanted = new Set(instance_ids);
      return sortedKeys(this.#instances)
        .filter((instance_id) => wanted.has(instance_id))
        .map((instance_id) => ({ ...(this.#instances.get(instance_id) as Instance) }));
    },
    list: ({ limit, cursor, ...filter }) => {
      const after = cursor === undefined ? '' : (decodeCursor(cursor, ['string'])[0] as string);
      const q = filter.q?.toLowerCase();
      const rows = sortedKeys(this.#instances)
        .map((instance_id) => this.#get(instance_id) as InstanceRow)
        .filter(
          (row) =>
            row.instance_id > after &&
            (filter.is_active === undefined || row.is_active === filter.is_active) &&
            (filter.paused === undefined || isSwitchedOn(row) !== filter.paused) &&
            (filter.health === undefined || healthOf(row) === filter.health) &&
            (filter.agent_id === undefined || row.agent_ids.includes(filter.agent_id)) &&
            (filter.meeting_id === undefined || this.#isIn(filter.meeting_id, row.instance_id)) &&
            (q === undefined ||
              row.instance_id.toLowerCase().includes(q) ||
              row.instance_name.toLowerCase().includes(q)),
        );
      const page = pageOf(
        rows.slice(0, limit + 1),
        limit,
        (row) => [row.instance_id],
        (row) => row,
      );
      return { ...page, searched_to: null };
    },
    listIds: (after, limit) =>
      sortedKeys(this.#instances)
        .filter((instance_id) => instance_id > (after ?? ''))
        .slice(0, limit)
        .map((instance_id) => {
          const { created_at } = this.#get(instance_id) as InstanceRow;
          return { instance_id, created_at };
        }),
    count: (after, limit) => {
      const counts: InstanceCounts = { unknown: 0, up: 0, failing: 0, down: 0, off: 0, connected: 0 };
      const part = sortedKeys(this.#instances)
        .filter((instance_id) => instance_id > (after ?? ''))
        .slice(0, limit);
      for (const instance_id of part) {
        const row = this.#get(instance_id) as InstanceRow;
        counts[isSwitchedOn(row) ? healthOf(row) : 'off']++;
        if (row.connection !== null) counts.connected++;
      }
      return { counts, next: part.length < limit ? null : (part.at(-1) ?? null) };
    },
    webhookUrls: (after, limit) =>
      sortedKeys(this.#instances)
        .filter((instance_id) => instance_id > (after ?? ''))
        .filter((instance_id) => this.#instances.get(instance_id)?.transport === 'webhook')
        .slice(0, limit)
        .map((instance_id) => ({
          instance_id,
          webhook_url: (this.#instances.get(instance_id) as Instance).webhook_url,
        })),
    patch: (instance_id, patch, wall_ms) => {
      const before = this.#instances.get(instance_id);
      const is_moved = patch.webhook_url !== undefined && patch.webhook_url !== before?.webhook_url;
      const lifts = patch.is_active === true || patch.webhook_enabled === true || is_moved;
      const drops =
        patch.webhook_headers === undefined &&
        patch.webhook_url !== undefined &&
        !isSameOrigin(before?.webhook_url ?? '', patch.webhook_url);
      const given = Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined));
      return this.#change(instance_id, {
        ...(given as Partial<Instance>),
        ...(is_moved && NO_HEALTH),
        ...(drops && { webhook_headers: {} }),
        ...(lifts && { backoff_step: 0, backoff_until: null }),
        updated_at: wall_ms,
      });
    },
    noteConnections: (changes) => {
      for (const { instance_id, connection } of changes) {
        if (connection === null || !this.#instances.has(instance_id)) this.#connections.delete(instance_id);
        else this.#connections.set(instance_id, connection);
      }
    },
    heartbeat: (instance_id, wall_ms) =>
      this.#change(instance_id, { last_seen_at: wall_ms, backoff_step: 0, backoff_until: null }),
    rotateSecret: (instance_id, new_secret, overlap_ms, wall_ms) => {
      const instance = this.#instances.get(instance_id);
      if (instance === undefined) return null;
      const { webhook_secret: current, earlier_secrets: earlier } = instance;
      assertOverlapLeft(earlier, overlap_ms, wall_ms);
      return this.#change(instance_id, {
        earlier_secrets: earlierAfter({ current, earlier }, overlap_ms, wall_ms),
        webhook_secret: new_secret,
        updated_at: wall_ms,
      });
    },
    remove: (instance_id, limit, wall_ms) => {
      const switched_off = this.#change(instance_id, { is_active: false, updated_at: wall_ms });
      if (switched_off === null) return { existed: false, done: true, cancelled: 0 };
      const pending = this.#pendingOf(instance_id);
      const in_lanes = pending.filter(({ aside }) => !aside).toSorted(byLane);
      const beside = pending.filter(({ aside }) => aside).toSorted(byDueTime);
      const cancelled = [...in_lanes, ...beside].slice(0, limit);
      for (const row of cancelled) {
        row.state = 'cancelled';
        row.reason = 'instance_deleted';
        row.next_attempt_at = null;
        row.settled_at = wall_ms;
      }
      if (cancelled.length >= limit) return { existed: true, done: false, cancelled: cancelled.length };
      for (const members of this.#memberships.values()) members.delete(instance_id);
      this.#instances.delete(instance_id);
      this.#connections.delete(instance_id);
      return { existed: true, done: true, cancelled: cancelled.length };
    },
  };

  #isIn(meeting_id: string, instance_id: string): boolean {
    return this.#memberships.get(meeting_id)?.get(instance_id)?.left_at === null;
  }

  readonly meetings: StoreOperations['meetings'] = {
    join: (meeting_id, instance_id, agent_ids, wall_ms, _owner, given = {}) => {
      if (!this.#instances.has(instance_id)) throw new Problem('instance_does_not_exist');
      this.#meeting(meeting_id, wall_ms);
      const members = this.#memberships.get(meeting_id) ?? new Map<string, Membership>();
      this.#memberships.set(meeting_id, members);
      const previous = members.get(instance_id);
      const joined_at = previous !== undefined && previous.left_at === null ? previous.joined_at : wall_ms;
      const rules: MemberRules = {
        wake: given.wake ?? previous?.wake ?? 'all',
        catch_up: given.catch_up ?? previous?.catch_up ?? 'all',
        max_age_s: given.max_age_s ?? previous?.max_age_s ?? 0,
      };
      if (hasRules(rules)) this.#change(instance_id, { has_rules: true });
      const membership = { meeting_id, instance_id, agent_ids, joined_at, left_at: null, ...rules };
      members.set(instance_id, membership);
      return { created: previous === undefined, membership: { ...membership } };
    },
    changeMembership: (meeting_id, instance_id, { agent_ids, wake, catch_up, max_age_s }) => {
      const membership = this.#memberships.get(meeting_id)?.get(instance_id);
      if (membership === undefined || membership.left_at !== null) return null;
      membership.agent_ids = agent_ids ?? membership.agent_ids;
      membership.wake = wake ?? membership.wake;
      membership.catch_up = catch_up ?? membership.catch_up;
      membership.max_age_s = max_age_s ?? membership.max_age_s;
      if (hasRules(membership)) this.#change(instance_id, { has_rules: true });
      return { ...membership };
    },
    leave: (meeting_id, instance_id, wall_ms) => {
      const membership = this.#memberships.get(meeting_id)?.get(instance_id);
      if (membership === undefined) return null;
      membership.left_at ??= wall_ms;
      this.#meeting(meeting_id, wall_ms);
      return { left_at: membership.left_at };
    },
    get: (meeting_id) => this.#meetingRows({}).find((row) => row.meeting_id === meeting_id) ?? null,
    patch: (meeting_id, patch) => {
      if (!this.#meetings.has(meeting_id)) return null;
      const changed = patched(this.#settings.get(meeting_id) ?? NO_SETTINGS, patch);
      if (isUnset(changed)) this.#settings.delete(meeting_id);
      else this.#settings.set(meeting_id, changed);
      return this.meetings.get(meeting_id);
    },
    settings: (meeting_id) => this.#settings.get(meeting_id) ?? null,
    allSettings: (after, limit) =>
      sortedKeys(this.#settings)
        .filter((meeting_id) => meeting_id > (after ?? ''))
        .slice(0, limit)
        .map((meeting_id) => ({ meeting_id, ...(this.#settings.get(meeting_id) as MeetingSettings) })),
    list: ({ limit, cursor, ...filter }) => {
      const after = cursor === undefined ? '' : (decodeCursor(cursor, ['string'])[0] as string);
      const rows = this.#meetingRows(filter).filter(({ meeting_id }) => meeting_id > after);
      const page = pageOf(
        rows.slice(0, limit + 1),
        limit,
        (row) => [row.meeting_id],
        (row) => row,
      );
      return { ...page, searched_to: null };
    },
    instances: (meeting_id, { include_left, ...page }) =>
      this.#members(meeting_id, include_left === true, page, (membership, instance) => {
        return { ...membership, instance_name: instance.instance_name, health: healthOf(instance) };
      }),
    candidates: (meeting_id, page, now_ms) =>
      this.#members(
        meeting_id,
        true,
        page,
        ({ instance_id, agent_ids, left_at, wake, catch_up, max_age_s }, instance) => {
          const { instance_name, is_active, webhook_enabled, backoff_until } = instance;
          const backing_off = backoff_until !== null && backoff_until > now_ms;
          const of_it = { instance_id, instance_name, agent_ids, wake, catch_up, max_age_s, left_at };
          return { ...of_it, is_active, webhook_enabled, unconnected: this.#isUnconnected(instance), backing_off };
        },
      ),
  };

  #members<Row extends { instance_id: string }>(
    meeting_id: string,
    include_left: boolean,
    { limit, cursor }: PageRequest,
    rowOf: (membership: Membership, instance: Instance) => Row,
  ): Page<Row> | null {
    if (!this.#meetings.has(meeting_id)) return null;
    const after = cursor === undefined ? '' : (decodeCursor(cursor, ['string'])[0] as string);
    const members = this.#memberships.get(meeting_id) ?? new Map<string, Membership>();
    const rows = sortedKeys(members)
      .map((instance_id) => members.get(instance_id) as Membership)
      .filter(({ instance_id, left_at }) => instance_id > after && (include_left || left_at === null))
      .map((membership) => rowOf(membership, this.#instances.get(membership.instance_id) as Instance));
    return pageOf(
      rows.slice(0, limit + 1),
      limit,
      (row) => [row.instance_id],
      (row) => row,
    );
  }

  #meetingRows({ q, instance_id, include_left }: Omit<MeetingFilter, 'limit' | 'cursor'>): MeetingRow[] {
    const isWith = (meeting_id: string): boolean => {
      if (instance_id === undefined) return true;
      const membership = this.#memberships.get(meeting_id)?.get(instance_id);
      return membership !== undefined && (include_left === true || membership.left_at === null);
    };
    return sortedKeys(this.#meetings)
      .filter((id) => (q === undefined || id.toLowerCase().includes(q.toLowerCase())) && isWith(id))
      .map((meeting_id) => {
        const members = [...(this.#memberships.get(meeting_id)?.values() ?? [])];
        const present = members.filter(({ left_at }) => left_at === null);
        const pending = members.flatMap((member) =>
          this.#pendingOf(member.instance_id).filter(({ message }) => message.meeting_id === meeting_id),
        );
        return {
          ...(this.#meetings.get(meeting_id) as Meeting),
          ...(this.#settings.get(meeting_id) ?? NO_SETTINGS),
          instance_count: present.length,
          agent_count: present.reduce((sum, { agent_ids }) => sum + agent_ids.length, 0),
          pending_deliveries: pending.length,
        };
      });
  }

  #isPaused({ message }: ModelDelivery): boolean {
    return this.#settings.get(message.meeting_id)?.paused === true;
  }

  /** The pending deliveries of an instance, a meeting or a lane, in the order of lanes. */
  #waiting({ instance_id, meeting_id, up_to }: Waiting): ModelDelivery[] {
    const last = up_to === null ? 0 : (this.#ids.decode('msg', up_to) ?? 0);
    return [...this.#deliveries.values()]
      .filter(
        (row) =>
          row.state === 'pending' &&
          (instance_id === undefined || row.instance_id === instance_id) &&
          (meeting_id === undefined || row.message.meeting_id === meeting_id) &&
          row.message.message_no <= last,
      )
      .toSorted(byLane);
  }

  #accept({ meeting_id, idempotency, wall_ms, ...sent }: NewMessage): Accepted {
    const key = idempotency === null ? null : `${meeting_id}\0${idempotency.sender}\0${idempotency.key}`;
    if (idempotency !== null && key !== null) {
      const previous = this.#keys.get(key);
      if (previous !== undefined && previous.created_at > wall_ms - IDEMPOTENCY_MS) {
        if (previous.fingerprint !== idempotency.fingerprint) return { kind: 'key_reused' };
        return { kind: 'repeated', message: { ...previous.result } };
      }
    }
    const given = sent.origin;
    const answered = given === null || given.in_reply_to === null ? null : this.#messages.get(given.in_reply_to);
    if (answered === undefined || (answered !== null && answered.meeting_id !== meeting_id))
      return { kind: 'refused', field: 'in_reply_to' };
    const meeting = this.#meeting(meeting_id, wall_ms);
    const seq = ++meeting.last_seq;
    const targets = sent.target_agents === null ? null : new Set(sent.target_agents);
    const members = this.#memberships.get(meeting_id) ?? new Map<string, Membership>();
    const queued: { instance_id: string; target_agents: string }[] = [];
    for (const instance_id of sortedKeys(members)) {
      const { agent_ids, left_at, wake } = members.get(instance_id) as Membership;
      if (left_at !== null) continue;
      const instance = this.#instances.get(instance_id);
      if (instance === undefined || !instance.is_active) continue;
      if (!instance.webhook_enabled) continue;
      const agents = agentsToNotify(agent_ids, targets, given?.from_agent ?? null, wake);
      if (agents.length > 0) queued.push({ instance_id, target_agents: JSON.stringify(agents) });
    }
    let origin: MessageOrigin | null = null;
    if (given !== null) {
      const { from_agent, in_reply_to } = given;
      const before = [...this.#messages.values()].find(
        (each) => each.meeting_id === meeting_id && each.seq === seq - 1,
      );
      const previous =
        before === undefined ? null : { hops: before.origin?.hops ?? 0, accepted_at: before.accepted_at };
      origin = {
        from_agent,
        in_reply_to,
        hops: hopsOf(from_agent, answered === null ? null : (answered.origin?.hops ?? 0), previous, wall_ms),
      };
    }
    const message_no = this.#numbers.take(1 + queued.length);
    const message: Message = {
      message_no,
      message_id: this.#ids.encode('msg', message_no),
      meeting_id,
      seq,
      accepted_at: wall_ms,
      deliveries_queued: queued.length,
      target_agents: sent.target_agents,
      timestamp: sent.timestamp,
      trace: sent.trace,
      origin,
      message: sent.message,
    };
    this.#messages.set(message.message_id, message);
    const deliveries = queued.map(({ instance_id, target_agents }, i) => {
      const delivery_no = message_no + 1 + i;
      const delivery_id = this.#ids.encode('dlv', delivery_no);
      const row: ModelDelivery = {
        delivery_no,
        delivery_id,
        message,
        instance_id,
        target_agents,
        expires_at: sent.expires_at,
        state: 'pending',
        reason: null,
        attempt_count: 0,
        answered_badly: 0,
        attempts: [],
        next_attempt_at: null,
        aside: false,
        created_at: wall_ms,
        settled_at: null,
      };
      this.#deliveries.set(delivery_id, row);
      const of_instance = this.#of_instance.get(instance_id);
      if (of_instance === undefined) this.#of_instance.set(instance_id, [row]);
      else of_instance.push(row);
      return { delivery_id, instance_id, target_agents };
    });
    const { message_id } = message;
    const accepted = { message_id, meeting_id, seq, accepted_at: wall_ms, deliveries_queued: queued.length };
    if (idempotency !== null && key !== null) {
      this.#keys.set(key, { fingerprint: idempotency.fingerprint, result: accepted, created_at: wall_ms });
    }
    return { kind: 'accepted', message: { ...accepted }, origin, deliveries };
  }

  /** The messages of a batch as another node reads them, with the pending deliveries to some instances. */
  storedOf(message_ids: string[], isWanted: (instance_id: string) => boolean): StoredRange[] {
    const ranges = new Map<string, StoredRange>();
    for (const message_id of message_ids) {
      const found = this.#messages.get(message_id);
      if (found === undefined) continue;
      const { message_no, meeting_id, seq, accepted_at, timestamp, origin, trace, message, deliveries_queued } = found;
      const range = ranges.get(meeting_id) ?? { meeting_id, first_seq: seq, last_seq: seq, messages: [] };
      ranges.set(meeting_id, range);
      range.last_seq = seq;
      const rows = Array.from({ length: deliveries_queued }, (_, i) =>
        this.#deliveries.get(this.#ids.encode('dlv', message_no + 1 + i)),
      ).filter(
        (row) =>
          row !== undefined &&
          row.state === 'pending' &&
          !row.aside &&
          row.attempt_count === 0 &&
          isWanted(row.instance_id),
      ) as ModelDelivery[];
      if (rows.length === 0) continue;
      const deliveries = rows.map(({ delivery_id, instance_id, target_agents }) => ({
        delivery_id,
        instance_id,
        target_agents,
      }));
      const { expires_at } = rows[0]!;
      const head = { message_id, meeting_id, seq, accepted_at, timestamp, origin, trace };
      range.messages.push({ ...head, message, expires_at, deliveries });
    }
    return [...ranges.values()];
  }

  readonly messages: StoreOperations['messages'] = {
    accept: (batch) => batch.map((message) => this.#accept(message)),
    list: (meeting_id, { after_seq, before_seq, limit, chars_max }) => {
      if (!this.#meetings.has(meeting_id)) return null;
      const found = [...this.#messages.values()].filter(
        (row) => row.meeting_id === meeting_id && row.seq > (after_seq ?? 0) && row.seq < (before_seq ?? Infinity),
      );
      found.sort((a, b) => (after_seq === undefined ? b.seq - a.seq : a.seq - b.seq));
      const page: Message[] = [];
      let has_more = false;
      let chars = 0;
      for (const row of found) {
        chars += row.message.length;
        has_more = page.length === limit || (chars > chars_max && page.length > 0);
        if (has_more) break;
        page.push(row);
      }
      if (after_seq === undefined) page.reverse();
      const data = page.map(({ message_id, seq, accepted_at, deliveries_queued, target_agents, origin, message }) => ({
        message_id,
        seq,
        accepted_at,
        deliveries_queued,
        target_agents,
        origin,
        message,
      }));
      return { data, has_more };
    },
    get: (message_id) => {
      const row = this.#messages.get(message_id);
      if (row === undefined) return null;
      const { meeting_id, deliveries_queued, seq, accepted_at, target_agents, origin, trace, message } = row;
      return { message_id, meeting_id, deliveries_queued, seq, accepted_at, target_agents, origin, trace, message };
    },
    answeredBy: (message_id, limit) => {
      const chain: Message[] = [];
      for (let row = this.#messages.get(message_id); row !== undefined && chain.length <= limit;) {
        chain.push(row);
        const answered = this.#messages.get(row.origin?.in_reply_to ?? '');
        row = answered?.meeting_id === row.meeting_id ? answered : undefined;
      }
      return chain.slice(1).map(briefOf);
    },
    answersTo: (message_id, meeting_id, after_seq, scan) => {
      const found = [...this.#messages.values()]
        .filter((row) => row.meeting_id === meeting_id && row.seq > after_seq)
        .toSorted((a, b) => a.seq - b.seq)
        .slice(0, scan);
      const data = found.filter(({ origin }) => origin?.in_reply_to === message_id).map(briefOf);
      return { data, next_seq: found.length < scan ? null : (found.at(-1) as Message).seq };
    },
    last: () => [...this.#messages.values()].at(-1)?.message_id ?? null,
    since: (after, { meeting_ids, instance_id, scan, limit, chars_max }) => {
      const later = [...this.#messages.values()].filter(({ message_id }) => after === null || message_id > after);
      const found = later
        .slice(0, scan)
        .filter(
          ({ message_id, meeting_id }) =>
            (meeting_ids === undefined || meeting_ids.includes(meeting_id)) &&
            (instance_id === undefined || this.#isFor(instance_id, message_id)),
        );
      let chars = 0;
      const past = found.findIndex((row, i) => {
        chars += row.target_agents === null ? 0 : JSON.stringify(row.target_agents).length;
        return i === limit || (chars > chars_max && i > 0);
      });
      const has_more = past !== -1 || later.length > scan;
      return { data: (past === -1 ? found : found.slice(0, past)).map(headOf), has_more };
    },
  };

  #isFor(instance_id: string, message_id: string): boolean {
    return (this.#of_instance.get(instance_id) ?? []).some((row) => row.message.message_id === message_id);
  }

  #queued(row: ModelDelivery): QueuedDelivery {
    const { message_id, meeting_id, seq, message, timestamp, origin, trace, accepted_at } = row.message;
    const { delivery_id, instance_id, target_agents, expires_at, attempt_count, answered_badly, attempts } = row;
    return {
      delivery_id,
      message_id,
      meeting_id,
      seq,
      instance_id,
      target_agents,
      message,
      timestamp,
      origin,
      trace,
      accepted_at,
      expires_at,
      attempt_count,
      answered_badly,
      attempts,
      next_attempt_at: row.next_attempt_at,
    };
  }

  #lane({ instance_id, meeting_id }: LaneKey): ModelDelivery[] {
    return this.#pendingOf(instance_id)
      .filter(({ aside, message }) => !aside && message.meeting_id === meeting_id)
      .toSorted((a, b) => a.message.seq - b.message.seq);
  }

  #pendingLanes(after: LaneKey | null, limit: number, partitions?: number[]): LaneKey[] {
    const lanes: LaneKey[] = [];
    for (const instance_id of sortedKeys(this.#of_instance)) {
      if (partitions?.includes(partitionOf(instance_id)) === false) continue;
      if (after !== null && instance_id < after.instance_id) continue;
      const in_lanes = this.#pendingOf(instance_id).filter(({ aside }) => !aside);
      for (const meeting_id of [...new Set(in_lanes.map(({ message }) => message.meeting_id))].toSorted()) {
        if (after !== null && instance_id === after.instance_id && meeting_id <= after.meeting_id) continue;
        lanes.push({ instance_id, meeting_id });
      }
    }
    return lanes.slice(0, limit);
  }

  /** The deliveries that a recovery queues again, in the order of the recovery. */
  #recoverable(of: Recovery): ModelDelivery[] {
    const rows = (this.#of_instance.get(of.instance_id) ?? []).filter((row) => this.#isOfThis(row));
    if ('delivery_ids' in of) {
      return rows.filter((row) => of.delivery_ids.includes(row.delivery_id) && mayQueueAgain(row));
    }
    const settledAt = (row: ModelDelivery): number => row.settled_at ?? 0;
    return rows
      .filter((row) => row.state === 'failed' && settledAt(row) >= of.since_ms && settledAt(row) <= of.until_ms)
      .toSorted((a, b) => settledAt(a) - settledAt(b));
  }

  /** Whether a delivery is of the instance that has the id now, and not of an earlier one. */
  #isOfThis({ instance_id, delivery_no }: ModelDelivery): boolean {
    return this.#instances.has(instance_id) && (this.#first_nos.get(instance_id) ?? 0) <= delivery_no;
  }

  #requeue(row: ModelDelivery, now_ms: number, expires_at: number): void {
    row.state = 'pending';
    row.reason = null;
    row.aside = true;
    row.answered_badly = 0;
    row.next_attempt_at = now_ms;
    row.expires_at = expires_at;
    row.settled_at = null;
  }

  #expire(row: ModelDelivery, wall_ms: number): void {
    row.state = 'failed';
    row.reason = 'expired';
    row.next_attempt_at = null;
    row.settled_at = wall_ms;
  }

  /** The instance of a delivery; null when the delivery does not exist. */
  instanceOf(delivery_id: string): string | null {
    return this.#deliveries.get(delivery_id)?.instance_id ?? null;
  }

  readonly deliveries: StoreOperations['deliveries'] = {
    settle: (deliveries, healths) => {
      for (const { epoch: _, ...settled } of deliveries) {
        const row = this.#deliveries.get(settled.delivery_id);
        if (row === undefined) continue;
        if (row.expires_at !== settled.expires_at) continue;
        const attempts = JSON.parse(fullAttemptsText(settled.attempts)) as Attempt[];
        if (row.state === 'pending') Object.assign(row, settled, { attempts });
        else if (row.state === 'failed' && row.reason === 'expired') {
          const { attempt_count, answered_badly, settled_at } = settled;
          Object.assign(row, { attempts, attempt_count, answered_badly, settled_at: settled_at ?? row.settled_at });
          if (settled.state !== 'pending') Object.assign(row, { state: settled.state, reason: settled.reason });
        }
      }
      for (const { webhook_url, gone_as_of, instance_id, epoch: _, ...health } of healths) {
        const instance = this.#instances.get(instance_id);
        if (instance === undefined) continue;
        if (instance.webhook_url === webhook_url) this.#change(instance_id, health);
        if (gone_as_of === instance.updated_at) this.#change(instance_id, { webhook_enabled: false });
      }
      return null;
    },
    loadLanes: (requests) =>
      requests.map((lane) => {
        const page: QueuedDelivery[] = [];
        let chars = 0;
        for (const row of this.#lane(lane)) {
          if (row.message.seq <= lane.after_seq) continue;
          if (page.length === lane.limit || chars >= LANE_PAGE_CHARS_MAX) break;
          page.push(this.#queued(row));
          chars += row.message.message.length;
        }
        return page;
      }),
    loadAside: (instance_id, now_ms, limit) => {
      const beside = this.#pendingOf(instance_id)
        .filter((row) => row.aside && !this.#isPaused(row))
        .toSorted(byDueTime);
      const due = beside.filter(({ next_attempt_at }) => next_attempt_at !== null && next_attempt_at <= now_ms);
      const read = due.slice(0, limit);
      const others = beside.filter((row) => !read.includes(row));
      return { deliveries: read.map((row) => this.#queued(row)), next_at: earliest(others), next: null };
    },
    ofAgentsBefore: ({ delivery_id, instance_id, meeting_id, seq }, since_ms, { rows_max }) => {
      const rows = this.#of_instance.get(instance_id) ?? [];
      const before = rows
        .slice(0, delivery_id === null ? rows.length : rows.findIndex((row) => row.delivery_id === delivery_id))
        .slice(-rows_max);
      return before.flatMap(({ message, target_agents, state, created_at, attempt_count, answered_badly, aside }) => {
        const { origin } = message;
        if (message.meeting_id !== meeting_id || message.seq >= seq || created_at <= since_ms) return [];
        if (state === 'cancelled' || (state === 'failed' && attempt_count === 0)) return [];
        if (origin === null || origin.from_agent === null) return [];
        const is_in_lane = state === 'pending' && !aside;
        const judged = {
          is_unjudged: is_in_lane && attempt_count === 0,
          may_be_left_out: is_in_lane && answered_badly === 0,
        };
        const { message_id } = message;
        const { from_agent, hops } = origin;
        return [{ message_id, from_agent, hops, target_agents, accepted_at: created_at, ...judged }];
      });
    },
    rulesAtHead: ({ delivery_id, instance_id, meeting_id, seq, expires_at }, { known_since_ms, rows_max }) => {
      const member = this.#memberships.get(meeting_id)?.get(instance_id);
      if (member === undefined || !hasRules(member)) {
        return { rules: NO_RULES, newest: null, newest_of_people: null, missed: 0 };
      }
      const behind = this.#lane({ instance_id, meeting_id })
        .filter((row) => row.message.seq > seq && row.expires_at >= expires_at)
        .toReversed()
        .slice(0, rows_max);
      const of_people = behind.find(({ message: { origin } }) => origin === null || origin.from_agent === null);
      const of_instance = this.#of_instance.get(instance_id) ?? [];
      const at = of_instance.findIndex((row) => row.delivery_id === delivery_id);
      const recent = of_instance.slice(0, at).slice(-rows_max).toReversed();
      const earlier = recent.filter(({ message }) => message.meeting_id === meeting_id);
      const pushed_seq = Math.max(0, ...earlier.filter(wasPushed).map(({ message }) => message.seq));
      const is_cut = pushed_seq === 0 && recent.length === rows_max;
      const since_ms = Math.max(member.joined_at, known_since_ms, is_cut ? recent.at(-1)!.created_at : 0);
      const between = [...this.#messages.values()]
        .filter(
          (message) =>
            message.meeting_id === meeting_id &&
            message.seq > pushed_seq &&
            message.seq < seq &&
            message.accepted_at >= since_ms,
        )
        .map((message) => {
          const delivery = earlier.find((row) => row.message === message) ?? null;
          return { target_agents: message.target_agents, from_agent: message.origin?.from_agent ?? null, delivery };
        });
      const { wake, catch_up, max_age_s } = member;
      return {
        rules: { wake, catch_up, max_age_s },
        newest: waitingIn(behind[0]),
        newest_of_people: waitingIn(of_people),
        missed: missedOf(between, member.agent_ids),
      };
    },
    pendingLanes: (after, limit, partitions) => this.#pendingLanes(after, limit, partitions),
    pendingAside: (after, limit, partitions) =>
      sortedKeys(this.#of_instance)
        .flatMap((instance_id) => {
          if (instance_id <= (after ?? '') || partitions?.includes(partitionOf(instance_id)) === false) return [];
          const beside = this.#pendingOf(instance_id).filter(({ aside }) => aside);
          return beside.length === 0 ? [] : [{ instance_id, next_at: earliest(beside) as number }];
        })
        .slice(0, limit),
    boundAside: (latest_ms, limit, partitions) => {
      const all = [...this.#deliveries.values()].filter(
        ({ state, aside, next_attempt_at, instance_id }) =>
          state === 'pending' &&
          aside &&
          (next_attempt_at ?? 0) > latest_ms &&
          partitions?.includes(partitionOf(instance_id)) !== false,
      );
      const late = all.slice(0, limit);
      for (const row of late) row.next_attempt_at = latest_ms;
      return late.length;
    },
    get: (delivery_id, now_ms) => {
      const row = this.#deliveries.get(delivery_id);
      return row === undefined ? null : this.#listed(row, now_ms);
    },
    list: ({ limit, cursor, ...filter }, now_ms) => {
      const before = cursor === undefined ? Infinity : (decodeCursor(cursor, ['number'])[0] as number);
      const rows = [...this.#deliveries.values()]
        .filter(
          (row) =>
            row.delivery_no < before &&
            (filter.instance_id === undefined || row.instance_id === filter.instance_id) &&
            (filter.meeting_id === undefined || row.message.meeting_id === filter.meeting_id) &&
            (filter.message_id === undefined || row.message.message_id === filter.message_id) &&
            (filter.state === undefined || row.state === filter.state),
        )
        .toSorted((a, b) => b.delivery_no - a.delivery_no);
      return pageOf(
        rows.slice(0, limit + 1),
        limit,
        (row) => [row.delivery_no],
        (row) => this.#listed(row, now_ms),
      );
    },
    retry: (delivery_id, now_ms, expires_at) => {
      const row = this.#deliveries.get(delivery_id);
      if (row === undefined) return null;
      const { state, aside, instance_id } = row;
      if (state === 'pending') row.next_attempt_at = aside ? now_ms : null;
      else if (mayQueueAgain(row) && this.#isOfThis(row)) this.#requeue(row, now_ms, expires_at);
      else throw new Problem('delivery_not_retryable');
      this.#change(instance_id, { backoff_step: 0, backoff_until: null });
      return { instance_id, meeting_id: row.message.meeting_id, aside: state !== 'pending' || aside };
    },
    recover: (of, limit, now_ms, expires_at) => {
      if (this.#change(of.instance_id, { backoff_step: 0, backoff_until: null }) === null) return null;
      const found = this.#recoverable(of).slice(0, limit);
      for (const row of found) this.#requeue(row, now_ms, expires_at);
      return { recovered: found.length };
    },
    countRecoverable: (of, most) =>
      this.#instances.has(of.instance_id) ? Math.min(this.#recoverable(of).length, most) : null,
    countMissed: (instance_id, { since_ms, until_ms }) => {
      const has_delivery = new Set((this.#of_instance.get(instance_id) ?? []).map(({ message }) => message));
      const missed = [...this.#messages.values()].filter((message) => {
        const member = this.#memberships.get(message.meeting_id)?.get(instance_id);
        if (member === undefined || member.left_at !== null || has_delivery.has(message)) return false;
        if (message.accepted_at < Math.max(since_ms, member.joined_at) || message.accepted_at > until_ms) return false;
        const targets = message.target_agents === null ? null : new Set(message.target_agents);
        const from_agent = message.origin?.from_agent ?? null;
        return agentsToNotify(member.agent_ids, targets, from_agent, member.wake).length > 0;
      });
      return { messages: missed.length, at_least: false };
    },
    expireLanes: (after, lanes_max, shared_ms, wall_ms, hold = NO_HOLD) => {
      const expired = new EndedInLanes();
      const following = this.#pendingLanes(after, lanes_max);
      let left = EXPIRED_AT_ONCE;
      for (const { seq, ...lane } of lanesToExpire(after, following)) {
        for (const row of this.#lane(lane)) {
          if (row.message.seq <= seq) continue;
          if (!hasExpired(row, shared_ms, hold)) break;
          this.#expire(row, wall_ms);
          expired.add(lane, 1);
          if (--left === 0) return { expired: expired.list(), next: { ...lane, seq: row.message.seq } };
        }
      }
      const done = following.length < lanes_max;
      return { expired: expired.list(), next: done ? null : { ...following.at(-1)!, seq: null } };
    },
    expireAside: (after, shared_ms, wall_ms, hold = NO_HOLD) => {
      const expired = new EndedInLanes();
      const beside = sortedKeys(this.#of_instance)
        .flatMap((instance_id) =>
          this.#pendingOf(instance_id)
            .filter(({ aside }) => aside)
            .toSorted(byDueTime),
        )
        .map((row) => ({ row, place: placeOf(row) }));
      const page = beside.filter(({ place }) => after === null || isBehind(place, after)).slice(0, EXPIRED_AT_ONCE);
      for (const { row } of page) {
        if (!hasExpired(row, shared_ms, hold)) continue;
        this.#expire(row, wall_ms);
        expired.add({ instance_id: row.instance_id, meeting_id: row.message.meeting_id }, 1);
      }
      return { expired: expired.list(), next: page.length < EXPIRED_AT_ONCE ? null : page.at(-1)!.place };
    },
    countWaiting: (waiting, most) => Math.min(this.#waiting(waiting).length, most),
    drop: (waiting, limit, wall_ms) => {
      const dropped = new EndedInLanes();
      for (const row of this.#waiting(waiting).slice(0, limit)) {
        row.state = 'cancelled';
        row.reason = 'dropped';
        row.next_attempt_at = null;
        row.settled_at = wall_ms;
        dropped.add({ instance_id: row.instance_id, meeting_id: row.message.meeting_id }, 1);
      }
      return dropped.list();
    },
    prune: (before, limit) => {
      const deliveries = [...this.#deliveries.values()]
        .filter(({ state, settled_at }) => state !== 'pending' && (settled_at ?? Infinity) < before.deliveries_ms)
        .slice(0, limit);
      for (const row of deliveries) {
        this.#deliveries.delete(row.delivery_id);
        const kept = this.#of_instance.get(row.instance_id)?.filter((other) => other !== row) ?? [];
        this.#of_instance.set(row.instance_id, kept);
      }
      const with_deliveries = new Set([...this.#deliveries.values()].map(({ message }) => message));
      const messages = [...this.#messages.values()]
        .filter((row) => row.accepted_at < before.messages_ms && !with_deliveries.has(row))
        .slice(0, limit);
      for (const row of messages) this.#messages.delete(row.message_id);
      const keys = [...this.#keys].filter(([, row]) => row.created_at < before.idempotency_ms).slice(0, limit);
      for (const [key] of keys) this.#keys.delete(key);
      const removed = deliveries.length + messages.length + keys.length;
      // The model checks all rows in each step, so it has no place in the middle.
      return { removed, next: removed === 0 ? null : { delivery_id: null, message_id: null, key_no: null } };
    },
    oldestPending: () => {
      const pending = [...this.#deliveries.values()].filter(({ state }) => state === 'pending');
      return pending.length === 0 ? null : Math.min(...pending.map(({ created_at }) => created_at));
    },
    timeNoted: () => this.#noted,
    noteTime: (note) => void (this.#noted = note),
    countPending: () => [...this.#deliveries.values()].filter(({ state }) => state === 'pending').length,
  };

  #listed(row: ModelDelivery, now_ms: number) {
    const { message_id, meeting_id, seq } = row.message;
    const { delivery_id, instance_id, state, reason, attempt_count, attempts, next_attempt_at } = row;
    return {
      delivery_id,
      message_id,
      meeting_id,
      seq,
      instance_id,
      target_agents: JSON.parse(row.target_agents) as string[],
      state,
      reason,
      waiting_for: this.#waitingFor(row, now_ms),
      attempt_count,
      attempts,
      next_attempt_at,
      created_at: row.created_at,
      settled_at: row.settled_at,
    };
  }

  #waitingFor(row: ModelDelivery, now_ms: number): WaitingFor | null {
    const { state, instance_id, next_attempt_at } = row;
    if (state !== 'pending') return null;
    const instance = this.#instances.get(instance_id);
    if (instance === undefined || !instance.is_active || !instance.webhook_enabled) return 'switched_off';
    if (this.#isPaused(row)) return 'paused';
    if (this.#isUnconnected(instance)) return 'connection';
    if (instance.backoff_until !== null && instance.backoff_until > now_ms) return 'back_off';
    return next_attempt_at === null ? 'turn' : 'retry';
  }

  #isUnconnected({ instance_id, transport }: Instance): boolean {
    return transport === 'pull' && !this.#connections.has(instance_id);
  }
}

function briefOf({ message_id, seq, accepted_at, origin, message }: Message): MessageBrief {
  return { message_id, seq, accepted_at, origin, excerpt: [...message].slice(0, EXCERPT_CHARS).join('') };
}

function replace<V>(map: Map<string, V>, entries: Iterable<readonly [string, V]>): void {
  map.clear();
  for (const [key, value] of entries) map.set(key, value);
}

function sortedKeys(map: ReadonlyMap<string, unknown>): string[] {
  return [...map.keys()].toSorted();
}

function byDueTime(a: ModelDelivery, b: ModelDelivery): number {
  return (a.next_attempt_at ?? 0) - (b.next_attempt_at ?? 0) || a.delivery_no - b.delivery_no;
}

function byLane(a: ModelDelivery, b: ModelDelivery): number {
  return a.message.meeting_id < b.message.meeting_id
    ? -1
    : a.message.meeting_id > b.message.meeting_id
      ? 1
      : a.message.seq - b.message.seq;
}

function placeOf({ instance_id, next_attempt_at, delivery_id }: ModelDelivery): AsidePlace {
  return { instance_id, next_attempt_at: next_attempt_at ?? 0, delivery_id };
}

/** The ids of this store grow with the numbers of the deliveries. */
function isBehind(a: AsidePlace, b: AsidePlace): boolean {
  if (a.instance_id !== b.instance_id) return a.instance_id > b.instance_id;
  if (a.next_attempt_at !== b.next_attempt_at) return a.next_attempt_at > b.next_attempt_at;
  return a.delivery_id > b.delivery_id;
}

function earliest(rows: readonly ModelDelivery[]): number | null {
  return rows.length === 0 ? null : Math.min(...rows.map(({ next_attempt_at }) => next_attempt_at ?? 0));
}

function hasExpired({ expires_at, message }: ModelDelivery, shared_ms: number, { held_ms, held_up_to }: Hold): boolean {
  const is_held = held_up_to !== null && message.message_id <= held_up_to;
  return expires_at <= shared_ms - (is_held ? held_ms : 0);
}

function headOf(row: Message): MessageHead {
  const { message_no: _, timestamp: __, message: ___, trace: ____, ...head } = row;
  return head;
}

function waitingIn(row: ModelDelivery | undefined) {
  if (row === undefined) return null;
  const { message_id, seq } = row.message;
  return { message_id, seq, expires_at: row.expires_at };
}
