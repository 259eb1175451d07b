import { hash, randomUUID } from 'node:crypto';
import { GenerationCache } from '../../domain/generation_cache.ts';
import { invalidField, Problem } from '../../domain/problem.ts';
import { readReply, REPLIES_MAX } from '../../domain/reply.ts';
import { replyRefusal, type ReplyToken } from '../../domain/reply_token.ts';
import type { TraceContext } from '../../domain/trace_context.ts';
import type { AcceptedMessage } from '../../store/contract/messages.ts';
import type { Store } from '../../store/store.ts';
import type { Clock } from '../clock.ts';
import type { Engine } from '../engine.ts';
import type { Observer } from '../observer.ts';
import { replySend } from './reply_send.ts';

/** The most deliveries whose number of replies is remembered. */
const COUNTS_MAX = 20_000;

const KEY_ENDED = 'The key of the instance was revoked, or has expired.';
const NOT_THE_SAME = 'The instance has another owner or another address than when it got the token.';
const NOT_IN_MEETING = 'The agent that replies is not in the meeting any more.';

/** A reply as the route hands it over. */
export interface LateReply {
  /** What JSON.parse returned for the reply, and the JSON text of the reply itself. */
  value: unknown;
  text: string;
  idempotency_key: string | undefined;
  /** The trace of its request. Null: the reply belongs to the trace of the message that it answers. */
  trace: TraceContext | null;
}

export interface LateRepliesParts {
  store: {
    deliveries: Pick<Store['deliveries'], 'get'>;
    instances: Pick<Store['instances'], 'load'>;
    messages: Pick<Store['messages'], 'get'>;
  };
  engine: Pick<Engine, 'send'>;
  clock: Clock;
  max_message_bytes: number;
  /** Knows whether a key can be used now and may own instances. */
  keyring: { canOwn: (key_id: string) => boolean };
  observer: Pick<Observer, 'replied'>;
}

/**
 * Sends replies that arrive after the response to the push. A delivery has REPLIES_MAX places for such replies. Each
 * reply takes one place, and the place is a part of the idempotency key of the reply. So the transaction that stores a
 * reply also counts it, on any node, and two replies that arrive together cannot take the same place. The store keeps
 * an idempotency key for as long as a token is valid, so a place stays taken while replies can come.
 */
export class LateReplies {
  readonly #store: LateRepliesParts['store'];
  readonly #engine: Pick<Engine, 'send'>;
  readonly #clock: Clock;
  readonly #max_message_bytes: number;
  readonly #keyring: LateRepliesParts['keyring'];
  readonly #observer: LateRepliesParts['observer'];
  /** By delivery: the first place that may be free. The search for a free place begins there. */
  readonly #counts = new GenerationCache<number>(COUNTS_MAX);

  constructor({ store, engine, clock, max_message_bytes, keyring, observer }: LateRepliesParts) {
    this.#store = store;
    this.#engine = engine;
    this.#clock = clock;
    this.#max_message_bytes = max_message_bytes;
    this.#keyring = keyring;
    this.#observer = observer;
  }

  /**
   * Sends a reply to the message that a delivery brought. When the same idempotency key is used again, the first reply
   * counts.
   *
   * @throws Problem `delivery_does_not_exist`, `replies_not_allowed`, `reply_limit_reached`, `invalid_fields`, and
   * those of `Engine.send`
   */
  async send(token: ReplyToken, reply: LateReply): Promise<{ message: AcceptedMessage; repeated: boolean }> {
    try {
      const sent = await this.#send(token, reply);
      this.#observer.replied('later', sent.repeated ? 'repeated' : 'stored');
      return sent;
    } catch (error) {
      // A status of 429 or higher means that the service could not store the reply now: the agent sends the reply
      // again, and the reply does not count as refused.
      if (error instanceof Problem && error.status < 429) this.#observer.replied('later', 'refused');
      throw error;
    }
  }

  async #send(
    { delivery_id, standsOn }: ReplyToken,
    reply: LateReply,
  ): Promise<{ message: AcceptedMessage; repeated: boolean }> {
    const delivery = await this.#store.deliveries.get(delivery_id, this.#clock.now());
    if (delivery === null)
      throw new Problem('delivery_does_not_exist', 'The message that the token replies to was removed.');
    const { instance_id, target_agents: agents } = delivery;
    const [instance = null] = await this.#store.instances.load([instance_id]);
    const refusal = replyRefusal(instance, standsOn);
    if (instance === null || refusal === 'off') throw new Problem('replies_not_allowed');
    if (refusal === 'changed') throw new Problem('replies_not_allowed', NOT_THE_SAME);
    // A pulling machine gets the push and its token because of its key, so the key must still be valid. A webhook gets
    // them because of its address, which `standsOn` has compared.
    const { owner_key_id, transport } = instance;
    if (transport === 'pull' && owner_key_id !== null && !this.#keyring.canOwn(owner_key_id))
      throw new Problem('replies_not_allowed', KEY_ENDED);
    const read = readReply(reply.value, reply.text, { agents, max_message_bytes: this.#max_message_bytes });
    if (read.kind === 'refused') throw invalidField('reply', `cannot be sent: ${read.why}`);
    const { idempotency_key } = reply;
    const trace = reply.trace ?? (await this.#store.messages.get(delivery.message_id))?.trace ?? null;
    // A reply with an idempotency key may be a repetition, and a repetition can have any place. So its search begins at
    // place 0. For any other reply the search begins after the places that are known to be taken.
    const from = idempotency_key === undefined ? (this.#counts.get(delivery_id) ?? 0) : 0;
    const fingerprint = idempotency_key === undefined ? randomUUID() : hash('sha256', idempotency_key, 'base64');
    for (let place = from; place < REPLIES_MAX; place++) {
      const idempotency = { key: `${delivery_id}/${place}`, fingerprint };
      try {
        const sent = await this.#engine.send(replySend(delivery, read.reply, trace, idempotency));
        this.#counts.set(delivery_id, Math.max(place + 1, this.#counts.get(delivery_id) ?? 0));
        return sent;
      } catch (error) {
        const code = error instanceof Problem ? error.code : null;
        if (code === 'not_permitted') throw new Problem('replies_not_allowed', NOT_IN_MEETING);
        if (code !== 'idempotency_key_reused') throw error;
      }
    }
    throw new Problem('reply_limit_reached');
  }
}
