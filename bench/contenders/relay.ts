/** Sending without a store: a message arrives, is signed, and is pushed. */
import type { Send } from '../../src/delivery/accept/acceptor.ts';
import { Fifo } from '../../src/delivery/fifo.ts';
import { type Target, targetOf } from '../../src/delivery/transport/target.ts';
import { pushOf } from '../../src/delivery/transport/push.ts';
import type { Transport } from '../../src/delivery/transport/transport.ts';
import { IdSource } from './ids.ts';
import { agentsToNotify } from '../../src/domain/agents_to_notify.ts';
import { pushBodyHead } from '../../src/domain/push_body.ts';
import type { AcceptedMessage } from '../../src/store/contract/messages.ts';
import { ACK_TIMEOUT_S, type Instance, NO_HEALTH } from '../../src/domain/instance.ts';
import { TIMEOUT_S } from '../../src/domain/runtimes/runtimes.ts';
import { type Fleet, membersOf, SECRET } from '../load/fleet.ts';

interface FleetInstance {
  instance: Instance;
  agent_ids: string[];
}

/** The instances of a fleet by meeting. */
function meetingsOf(fleet: Fleet): Map<string, FleetInstance[]> {
  const meetings = new Map<string, FleetInstance[]>();
  for (const { instance_id, meeting_id, agent_id, webhook_url } of membersOf(fleet)) {
    const instance: Instance = {
      ...NO_HEALTH,
      instance_id,
      instance_name: instance_id,
      agent_ids: [agent_id],
      transport: 'webhook',
      ack_timeout_s: ACK_TIMEOUT_S,
      timeout_s: TIMEOUT_S,
      runtime: null,
      lease_until: null,
      webhook_url,
      webhook_headers: {},
      webhook_secret: SECRET,
      earlier_secrets: [],
      success_statuses: '200',
      replies: false,
      has_rules: false,
      webhook_enabled: true,
      is_active: true,
      last_seen_at: null,
      created_at: 0,
      updated_at: 0,
      owner_key_id: null,
    };
    const members = meetings.get(meeting_id) ?? [];
    members.push({ instance, agent_ids: [agent_id] });
    meetings.set(meeting_id, members);
  }
  return meetings;
}

/**
 * With this many deliveries queued, acceptance waits for dispatch, as in the engine. Otherwise the event loop would be
 * busy with intake, and pushes would wait.
 */
const QUEUED_MAX = 4_000;

interface Receiver {
  target: Target;
  queue: Fifo<Parameters<typeof pushOf>[0]>;
  busy: boolean;
}

/**
 * Takes the place of the engine. It makes one push at a time to each instance, as a lane does. The service makes up to
 * four pushes at a time to an instance in several meetings. With four the relay would be no faster, and would lose the
 * order.
 */
export class Relay {
  readonly #transport: Transport;
  readonly #user_agent: string;
  readonly #ids = new IdSource();
  readonly #meetings: Map<string, FleetInstance[]>;
  readonly #receivers = new Map<string, Receiver>();
  readonly #seqs = new Map<string, number>();
  readonly #waiting = new Fifo<{
    send: Send;
    resolve: (sent: { message: AcceptedMessage; repeated: boolean }) => void;
  }>();
  #scheduled = false;
  #queued = 0;

  constructor(fleet: Fleet, transport: Transport, user_agent: string) {
    this.#transport = transport;
    this.#user_agent = user_agent;
    this.#meetings = meetingsOf(fleet);
    for (const members of this.#meetings.values()) {
      for (const { instance } of members) {
        this.#receivers.set(instance.instance_id, {
          target: targetOf(instance),
          queue: new Fifo(),
          busy: false,
        });
      }
    }
  }

  send(send: Send): Promise<{ message: AcceptedMessage; repeated: boolean }> {
    const { promise, resolve } = Promise.withResolvers<{ message: AcceptedMessage; repeated: boolean }>();
    this.#waiting.push({ send, resolve });
    this.#schedule();
    return promise;
  }

  /**
   * Responds to all messages of one turn of the event loop together. That takes 72 µs of processor time per message;
   * single responses took 142 µs.
   */
  #schedule(): void {
    if (this.#scheduled || this.#waiting.length === 0 || this.#queued >= QUEUED_MAX) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      while (this.#queued < QUEUED_MAX) {
        const waiting = this.#waiting.shift();
        if (waiting === undefined) return;
        waiting.resolve({ message: this.#accept(waiting.send), repeated: false });
      }
    });
  }

  #accept(send: Send): AcceptedMessage {
    const { meeting_id } = send;
    const accepted_at = Date.now();
    const seq = (this.#seqs.get(meeting_id) ?? 0) + 1;
    this.#seqs.set(meeting_id, seq);
    const message_id = this.#ids.next('msg');
    const body_head = pushBodyHead(meeting_id, send.message);
    const targets = send.target_agents === null ? null : new Set(send.target_agents);
    let deliveries_queued = 0;
    for (const { instance, agent_ids } of this.#meetings.get(meeting_id) ?? []) {
      const agents = agentsToNotify(agent_ids, targets);
      if (agents.length === 0) continue;
      const receiver = this.#receivers.get(instance.instance_id)!;
      deliveries_queued++;
      this.#queued++;
      receiver.queue.push({
        delivery_id: this.#ids.next('dlv'),
        message_id,
        seq,
        instance_id: instance.instance_id,
        body_head,
        target_agents: JSON.stringify(agents),
        timestamp: send.timestamp,
        origin: null,
        trace: null,
      });
      this.#next(receiver);
    }
    return { message_id, meeting_id, seq, accepted_at, deliveries_queued };
  }

  #next(receiver: Receiver): void {
    if (receiver.busy) return;
    const delivery = receiver.queue.shift();
    if (delivery === undefined) return;
    receiver.busy = true;
    const push = pushOf(delivery, receiver.target, 1, Date.now(), this.#user_agent);
    void this.#transport.push(push, receiver.target).then(() => {
      receiver.busy = false;
      this.#queued--;
      this.#next(receiver);
      this.#schedule();
    });
  }

  get stats() {
    return { in_flight: 0, queued_in_memory: this.#queued, unsettled: 0, instances_in_memory: this.#receivers.size };
  }
}
