/**
 * The demo inside the service: a meeting with two agents of different runtimes. They answer everybody who speaks to
 * them.
 */
import type { Author } from '../changes/author.ts';
import type { Changes } from '../changes/changes.ts';
import type { Log } from '../delivery/bounded_log.ts';
import type { Clock } from '../delivery/clock.ts';
import type { Engine } from '../delivery/engine.ts';
import type { EgressPolicy } from '../domain/address.ts';
import type { AuditSubject } from '../domain/audit.ts';
import { Problem } from '../domain/problem.ts';
import { checkedRuntime, runtimeOf } from '../domain/runtimes/runtimes.ts';
import { isRefusal, parseWebhookUrl } from '../domain/webhook_url.ts';
import type { Store } from '../store/store.ts';
import { Conversation, DEMO_HOST, type DemoService } from './conversation.ts';
import { TURNS } from './script.ts';

/** Slow enough for people to watch. */
const PAUSE_MS = 1_000;
/**
 * How many messages of others the demo answers. Without a limit it would never stop talking to an agent that also
 * answers everything.
 */
const ANSWERS_MAX = 100;

/** The name under which the demo opens its meeting. */
const HOST_NAME = 'demo';

export interface DemoStatus {
  state: 'stopped' | 'talking' | 'listening';
  meeting_id: string | null;
  instance_ids: string[];
  turns: number;
}

interface DemoParts {
  store: Pick<Store, 'audited'>;
  changes: Pick<Changes, 'instances' | 'memberships'>;
  engine: Pick<Engine, 'send'>;
  clock: Clock;
  log: Log;
  egress_policy: EgressPolicy;
  /** Whether this node delivers to an instance. */
  delivers: (instance_id: string) => boolean;
}

export class DemoMeeting {
  readonly #parts: DemoParts;
  #conversation: Conversation | null = null;
  /** The author of the last start or stop. In the audit log, this author has made the changes of the demo. */
  #author: Author;
  #is_closed = false;
  /** The last call of `start` or `stop`. Each call waits for the previous one. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(parts: DemoParts) {
    this.#parts = parts;
    this.#author = this.#serviceItself();
  }

  get status(): DemoStatus {
    const conversation = this.#conversation;
    if (conversation === null) return { state: 'stopped', meeting_id: null, instance_ids: [], turns: 0 };
    const { meeting_id, instance_ids, turns } = conversation;
    return { state: turns < TURNS.length ? 'talking' : 'listening', meeting_id, instance_ids, turns };
  }

  /**
   * Starts the demo unless it runs. Returns whether it was started.
   *
   * @throws Problem `demo_not_possible` when the egress policy allows no push to this machine; the problems of a
   * registration
   */
  start(author: Author): Promise<boolean> {
    return this.#inTurn(async () => {
      if (this.#is_closed) throw new Problem('shutting_down');
      if (this.#conversation !== null) return false;
      this.#assertReachable();
      this.#author = author;
      const conversation = this.#makeConversation();
      try {
        await conversation.gather();
        await conversation.open(HOST_NAME);
      } catch (error) {
        await conversation.end();
        throw error;
      }
      this.#conversation = conversation;
      await author.record();
      return true;
    });
  }

  /** Stops the demo and removes its instances. Returns whether it ran. */
  stop(author: Author): Promise<boolean> {
    return this.#inTurn(async () => {
      const conversation = this.#conversation;
      if (conversation === null) return false;
      this.#conversation = null;
      this.#author = author;
      await conversation.end((error) =>
        this.#parts.log.warn({ err: error }, 'an instance of the demo was not removed'),
      );
      await author.record();
      return true;
    });
  }

  /** Stops the demo because the service stops. */
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
        onPush() {},
        asked() {},
        says() {},
        failed: (error) => log.warn({ err: error }, 'the demo cannot go on; stop it and start it again'),
      },
      clock,
      turns: TURNS,
      pause_ms: PAUSE_MS,
      answers_max: ANSWERS_MAX,
      isPushedFromHere: delivers,
    });
  }

  /** Makes the same changes as the routes, but without HTTP, because the agents have no key. */
  #asService(): DemoService {
    const { engine, changes } = this.#parts;
    return {
      register: ({ runtime: name, runtime_options, ...registration }) => {
        const runtime = checkedRuntime(name, runtime_options);
        return changes.instances.register(this.#authorOf('instance.register', registration.instance_id), {
          ...registration,
          runtime,
          timeout_s: runtime === null ? undefined : runtimeOf(runtime).timeout_s,
          replies: runtime === null ? undefined : true,
          webhook_headers: undefined,
          new_secret: registration.webhook_secret,
          success_statuses: undefined,
        });
      },
      joinMeeting: ({ meeting_id, instance_id, agent_ids }) =>
        changes.memberships.join(this.#authorOf('meeting.join', instance_id), meeting_id, instance_id, agent_ids),
      async sendMessage(meeting_id, message, { target_agents, from_agent, in_reply_to = null } = {}) {
        const { created_at } = message as { created_at: string };
        const { message: sent } = await engine.send({
          meeting_id,
          message: JSON.stringify(message),
          timestamp: created_at,
          target_agents: target_agents ?? null,
          origin: from_agent === undefined ? null : { from_agent, in_reply_to, speaks_for: null },
          trace: null,
          expires_in_ms: null,
          idempotency: null,
        });
        return sent;
      },
      deleteInstance: (instance_id) =>
        changes.instances.remove(this.#authorOf('instance.delete', instance_id), instance_id),
    };
  }

  /** Each change of the demo has the author who started or stopped the demo. */
  #authorOf(action: AuditSubject['action'], target_id: string): Author {
    const author = this.#author;
    const subject = { action, target_kind: 'instance', target_id, details: {} } as const;
    return { ...author, storeFor: (more) => author.storeFor({ ...subject, ...more }) };
  }

  #serviceItself(): Author {
    const { store, clock } = this.#parts;
    const stopping: AuditSubject = {
      principal: 'service',
      address: null,
      action: 'demo.stop',
      target_kind: 'service',
      target_id: null,
      details: {},
    };
    return {
      key_id: null,
      owner_scope: null,
      storeFor: (more) => store.audited({ subject: { ...stopping, ...more }, wall_ms: clock.wall() }),
      assertStanding() {},
      // Writes no entry: when the service stops, the end of the demo needs none. The removal of each instance has one.
      record: async () => {},
    };
  }
}
