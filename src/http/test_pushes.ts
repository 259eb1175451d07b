import type { ServerResponse } from 'node:http';
import type { WebhookTransport } from '../delivery/transport/webhook_transport.ts';
import { Problem } from '../domain/problem.ts';
import { onClosed } from './on_closed.ts';

/** The most pushes to one instance: two people may test it at the same time. */
const INSTANCE_PUSHES_MAX = 2;
/** The most pushes of all keys. Each push needs a connection of its own, beside those that deliveries may use. */
const PUSHES_MAX = 50;
/** The most pushes of one key, so that a key with many instances that do not respond leaves room for other keys. */
const KEY_PUSHES_MAX = 10;

const RETRY_AFTER_S = 2;

/**
 * The pushes whose results a request waits for: webhook tests, and the challenges of subscriptions. No lane limits
 * them, and none of the limits for deliveries counts them. So this class limits how many there are at a time, and ends
 * a push when its client leaves.
 */
export class TestPushes {
  readonly #transport: Pick<WebhookTransport, 'pushFor'>;
  readonly #by_instance = new Tally();
  readonly #by_key = new Tally();
  #pushes = 0;

  constructor(transport: Pick<WebhookTransport, 'pushFor'>) {
    this.#transport = transport;
  }

  /**
   * @param key_id the key of the request; null without a key
   * @param response the response of the request
   * @param use makes at most one push
   * @throws Problem `overloaded`
   */
  async make<Result>(
    { instance_id, key_id }: { instance_id: string; key_id: string | null },
    response: ServerResponse,
    use: (transport: Pick<WebhookTransport, 'pushFor'>) => Promise<Result>,
  ): Promise<Result> {
    if (this.#by_instance.of(instance_id) >= INSTANCE_PUSHES_MAX) {
      throw overloaded(`${INSTANCE_PUSHES_MAX} webhook tests of this instance`);
    }
    if (key_id !== null && this.#by_key.of(key_id) >= KEY_PUSHES_MAX) {
      throw overloaded(`${KEY_PUSHES_MAX} webhook tests of this key`);
    }
    if (this.#pushes >= PUSHES_MAX) throw overloaded(`${PUSHES_MAX} webhook tests`);
    this.#count(instance_id, key_id, 1);
    const left = new AbortController();
    onClosed(response, () => left.abort());
    try {
      return await use({ pushFor: (push, timeout_ms) => this.#transport.pushFor(push, timeout_ms, left.signal) });
    } finally {
      this.#count(instance_id, key_id, -1);
    }
  }

  #count(instance_id: string, key_id: string | null, change: 1 | -1): void {
    this.#pushes += change;
    this.#by_instance.add(instance_id, change);
    if (key_id !== null) this.#by_key.add(key_id, change);
  }
}

/** A number for each name; only names whose number is not 0 take memory. */
class Tally {
  readonly #counts = new Map<string, number>();

  of(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  add(name: string, change: number): void {
    const count = this.of(name) + change;
    if (count === 0) this.#counts.delete(name);
    else this.#counts.set(name, count);
  }
}

function overloaded(what: string): Problem {
  return new Problem('overloaded', `There are ${what} in progress. Try again when one has ended.`, {
    retry_after_s: RETRY_AFTER_S,
  });
}
