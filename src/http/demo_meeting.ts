/** The demo within the service: a meeting to look at, with two agents that answer whoever speaks to them. */
import { Conversation, DEMO_HOST, type DemoRegistration, type DemoService } from '../demo/conversation.ts';
import { TURNS } from '../demo/script.ts';
import type { AuditSubject } from '../domain/audit.ts';
import { Problem } from '../domain/problem.ts';
import { isRefusal, parseWebhookUrl } from '../domain/webhook_url.ts';
import type { AuditedStore } from '../store/store.ts';
import { membershipEvent } from '../feed/events.ts';
import type { HttpContext } from './context.ts';
import { registerInstance, removeInstance } from './registry.ts';

/** Slow enough to be watched. */
const PAUSE_MS = 1_000;
/** So that agents of others that answer everything end some time. */
const ANSWERS_MAX = 100;

/** The name under which the demo opens its meeting. */
const HOST_NAME = 'demo';

export interface DemoStatus {
  state: 'stopped' | 'talking' | 'listening';
  meeting_id: string | null;
  instance_ids: string[];
  turns: number;
}

/** Whoever starts or stops the demo: the audit log has each instance under his name. */
export interface DemoActor {
  /** The key that will own the instances. */
  key_id: string | null;
  audited(subject: Pick<AuditSubject, 'action' | 'target_kind' | 'target_id' | 'details'>): AuditedStore;
}

type DemoParts = Pick<HttpContext, 'store' | 'engine' | 'feed' | 'clock' | 'log' | 'egress_policy'> & {
  /** Whether this node delivers to an instance. */
  delivers: (instance_id: string) => boolean;
};

export class DemoMeeting {
  readonly #parts: DemoParts;
  #conversation: Conversation | null = null;
  #actor: DemoActor;
  #is_closed = false;
  /** Starts and stops one after the other. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(parts: DemoParts) {
    this.#parts = parts;
    this.#actor = this.#serviceItself();
  }

  get status(): DemoStatus {
    const conversation = this.#conversation;
    if (conversation === null) return { state: 'stopped', meeting_id: null, instance_ids: [], turns: 0 };
    const { meeting_id, instance_ids, turns } = conversation;
    return { state: turns < TURNS.length ? 'talking' : 'listening', meeting_id, instance_ids, turns };
  }

  /**
   * Starts it unless it runs; whether it was started.
   *
   * @throws Problem `demo_not_possible` when the egress policy lets no push reach this machine; those of registering
   */
  start(actor: DemoActor): Promise<boolean> {
    return this.#inTurn(async () => {
      if (this.#is_closed) throw new Problem('shutting_down');
      if (this.#conversation !== null) return false;
      this.#assertReachable();
      this.#actor = actor;
      const conversation = this.#makeConversation();
      try {
        await conversation.gather();
        await conversation.open(HOST_NAME);
      } catch (error) {
        await conversation.end();
        throw error;
      }
      this.#conversation = conversation;
      return true;
    });
  }

  /** Ends it, and removes its instances; whether it ran. */
  stop(actor: DemoActor): Promise<boolean> {
    return this.#inTurn(async () => {
      const conversation = this.#conversation;
      if (conversation === null) return false;
      this.#conversation = null;
      this.#actor = actor;
      await conversation.end((error) =>
        this.#parts.log.warn({ err: error }, 'an instance of the demo was not removed'),
      );
      return true;
    });
  }

  /** It ends with the service. */
  async close(): Promise<void> {
    this.#is_closed = true;
    await this.stop(this.#serviceItself());
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#turn.then(work);
    this.#turn = done.catch(() => {});
    return done;
  }

  #assertReachable(): void {
    const parsed = parseWebhookUrl(`http://${DEMO_HOST}:1/`, this.#parts.egress_policy);
    if (!isRefusal(parsed)) return;
    throw new Problem(
      'demo_not_possible',
      `The agents of the demo listen on ${DEMO_HOST}, which ${parsed.message}. \`convoke demo\` shows the same on a service of its own.`,
    );
  }

  #makeConversation(): Conversation {
    const { clock, log, delivers } = this.#parts;
    return new Conversation({
      service: this.#asService(),
      observer: {
        joined() {},
        heard() {},
        says() {},
        failed: (error) => log.warn({ err: error }, 'the demo cannot go on; stop it and start it anew'),
      },
      clock,
      turns: TURNS,
      pause_ms: PAUSE_MS,
      answers_max: ANSWERS_MAX,
      isPushedFromHere: delivers,
    });
  }

  /** What the routes do for everybody, without the way over HTTP: the agents have no key. */
  #asService(): DemoService {
    const { engine, feed, clock } = this.#parts;
    return {
      register: (registration) => this.#register(registration),
      joinMeeting: async ({ meeting_id, instance_id, agent_ids }) => {
        const { meetings } = this.#audited('meeting.join', instance_id, { meeting_id });
        const { membership } = await meetings.join(meeting_id, instance_id, agent_ids, clock.wall());
        feed.publish(membershipEvent('instance.joined', instance_id, meeting_id, membership.joined_at));
      },
      async sendMessage(meeting_id, message, { target_agents } = {}) {
        const { created_at } = message as { created_at: string };
        const { message: sent } = await engine.send({
          meeting_id,
          message: JSON.stringify(message),
          timestamp: created_at,
          target_agents: target_agents ?? null,
          idempotency: null,
        });
        return sent;
      },
      deleteInstance: (instance_id) =>
        removeInstance(this.#parts, this.#audited('instance.delete', instance_id).instances, instance_id, null),
    };
  }

  #register(registration: DemoRegistration): Promise<unknown> {
    const { instance_id, webhook_secret } = registration;
    return registerInstance(
      this.#parts,
      this.#audited('instance.register', instance_id).instances,
      {
        ...registration,
        webhook_headers: undefined,
        new_secret: webhook_secret,
        success_statuses: undefined,
        owner_key_id: this.#actor.key_id,
      },
      null,
    );
  }

  #audited(action: AuditSubject['action'], target_id: string, details: AuditSubject['details'] = {}): AuditedStore {
    return this.#actor.audited({ action, target_kind: 'instance', target_id, details });
  }

  #serviceItself(): DemoActor {
    const { store, clock } = this.#parts;
    return {
      key_id: null,
      audited: (subject) =>
        store.audited({ subject: { ...subject, principal: 'service', address: null }, wall_ms: clock.wall() }),
    };
  }
}
