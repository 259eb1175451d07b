/** A store without a disk: what the engine asks of one while all goes well, out of memory. */
import type { Instance } from '../../src/domain/instance.ts';
import { NO_HEALTH } from '../../src/domain/instance.ts';
import { IdSource } from './ids.ts';
import { agentsToNotify } from '../../src/domain/message.ts';
import type { Accepted, MessageStore, NewMessage } from '../../src/store/contract/messages.ts';
import type { ApiKeyStore } from '../../src/store/contract/api_keys.ts';
import type { AuditStore } from '../../src/store/contract/audit.ts';
import type {
  DeliverySettlement,
  DeliveryStore,
  LaneKey,
  LaneRequest,
  QueuedDelivery,
} from '../../src/store/contract/deliveries.ts';
import type { EncryptionStore } from '../../src/store/contract/encryption.ts';
import type { InstanceStore } from '../../src/store/contract/instances.ts';
import type { MeetingStore } from '../../src/store/contract/meetings.ts';
import type { SessionStore } from '../../src/store/contract/sessions.ts';
import type { Store } from '../../src/store/store.ts';
import { type Fleet, membersOf, SECRET } from '../load/fleet.ts';

export interface FleetInstance {
  instance: Instance;
  agent_ids: string[];
}

/** The instances of a fleet by meeting. */
export function meetingsOf(fleet: Fleet): Map<string, FleetInstance[]> {
  const meetings = new Map<string, FleetInstance[]>();
  for (const { instance_id, meeting_id, agent_id, webhook_url } of membersOf(fleet)) {
    const instance: Instance = {
      ...NO_HEALTH,
      instance_id,
      instance_name: instance_id,
      agent_ids: [agent_id],
      webhook_url,
      webhook_headers: {},
      webhook_secret: SECRET,
      previous_secret: null,
      previous_secret_until: null,
      success_statuses: '200',
      webhook_enabled: true,
      is_active: true,
      last_seen_at: null,
      created_at: 0,
      updated_at: 0,
    };
    const members = meetings.get(meeting_id) ?? [];
    members.push({ instance, agent_ids: [agent_id] });
    meetings.set(meeting_id, members);
  }
  return meetings;
}

/** Far more than the engine lets wait on disk here. */
const LANE_LENGTH_MAX = 100_000;

export class ForgetfulStore implements Store {
  readonly #ids = new IdSource();
  readonly #meetings: Map<string, FleetInstance[]>;
  readonly #by_id = new Map<string, Instance>();
  readonly #seqs = new Map<string, number>();
  readonly #pending = new Map<string, QueuedDelivery>();
  /** By instance and meeting, in order: what was accepted since the lane was last loaded. */
  readonly #lanes = new Map<string, QueuedDelivery[]>();
  readonly meetings = {} as MeetingStore;
  readonly encryption = {} as EncryptionStore;
  readonly api_keys = {} as ApiKeyStore;
  readonly audit = {} as AuditStore;
  readonly sessions = {} as SessionStore;
  readonly audited = () => this;
  readonly cluster = null;

  constructor(fleet: Fleet) {
    this.#meetings = meetingsOf(fleet);
    for (const members of this.#meetings.values()) {
      for (const { instance } of members) this.#by_id.set(instance.instance_id, instance);
    }
  }

  readonly instances = {
    load: async (instance_ids: string[]) => instance_ids.flatMap((id) => this.#by_id.get(id) ?? []),
  } as unknown as InstanceStore;

  readonly messages = {
    accept: async (batch: NewMessage[]): Promise<Accepted[]> => batch.map((message) => this.#accept(message)),
  } as unknown as MessageStore;

  readonly deliveries = {
    settle: async (deliveries: DeliverySettlement[]) => {
      for (const { delivery_id, state } of deliveries) if (state !== 'pending') this.#pending.delete(delivery_id);
    },
    loadLanes: async (requests: LaneRequest[]) => requests.map((request) => this.#loadLane(request)),
    loadAside: async () => ({ deliveries: [], next_at: null }),
    pendingLanes: async () => [],
    pendingAside: async () => [],
    boundAside: async () => 0,
    countPending: async () => this.#pending.size,
  } as unknown as DeliveryStore;

  #accept({ meeting_id, message, timestamp, target_agents, wall_ms, expires_at }: NewMessage): Accepted {
    const seq = (this.#seqs.get(meeting_id) ?? 0) + 1;
    this.#seqs.set(meeting_id, seq);
    const message_id = this.#ids.next('msg');
    const targets = target_agents === null ? null : new Set(target_agents);
    const deliveries = [];
    for (const { instance, agent_ids } of this.#meetings.get(meeting_id) ?? []) {
      const agents = agentsToNotify(agent_ids, targets);
      if (agents.length === 0) continue;
      const { instance_id } = instance;
      const delivery_id = this.#ids.next('dlv');
      const delivery = { delivery_id, instance_id, target_agents: JSON.stringify(agents) };
      deliveries.push(delivery);
      const queued: QueuedDelivery = {
        ...delivery,
        message_id,
        meeting_id,
        seq,
        message,
        timestamp,
        accepted_at: wall_ms,
        expires_at,
        attempt_count: 0,
        answered_badly: 0,
        attempts: [],
        next_attempt_at: null,
      };
      this.#pending.set(delivery_id, queued);
      const lane = this.#laneOf({ instance_id, meeting_id });
      // A lane that is never loaded must not grow for ever.
      if (lane.length >= LANE_LENGTH_MAX) lane.splice(0, LANE_LENGTH_MAX / 2);
      lane.push(queued);
    }
    const accepted = { message_id, meeting_id, seq, accepted_at: wall_ms, deliveries_queued: deliveries.length };
    return { kind: 'accepted', message: accepted, deliveries };
  }

  #laneOf({ instance_id, meeting_id }: LaneKey): QueuedDelivery[] {
    const key = `${instance_id} ${meeting_id}`;
    let lane = this.#lanes.get(key);
    if (lane === undefined) this.#lanes.set(key, (lane = []));
    return lane;
  }

  #loadLane({ after_seq, limit, ...key }: LaneRequest): QueuedDelivery[] {
    const lane = this.#laneOf(key);
    let from = 0;
    for (let to = lane.length; from < to;) {
      const middle = (from + to) >> 1;
      if (lane[middle]!.seq <= after_seq) from = middle + 1;
      else to = middle;
    }
    // What was in memory before is not asked for again.
    lane.splice(0, from);
    return lane.slice(0, limit);
  }

  onChange(): void {}
  async ping(): Promise<void> {}
  async close(): Promise<void> {}
}
