import type { ServerResponse } from 'node:http';
import type { WebhookTransport } from '../delivery/transport/webhook_transport.ts';
import { Problem } from '../domain/problem.ts';
import { onClosed } from './on_closed.ts';

/** Two people may test an instance at the same time. */
const INSTANCE_PUSHES_MAX = 2;
/** Each one needs a connection of its own, beside those that deliveries may use. */
const PUSHES_MAX = 50;

const RETRY_AFTER_S = 2;

/**
 * The pushes whose results a request waits for: webhook tests, and the challenges of subscriptions. No lane limits
 * them, and none of the limits for deliveries counts them. So this class limits how many there are at a time, and ends
 * a push when its client leaves.
 */
export class TestPushes {
  readonly #transport: Pick<WebhookTransport, 'pushFor'>;
  readonly #by_instance = new Map<string, number>();
  #pushes = 0;

  constructor(transport: Pick<WebhookTransport, 'pushFor'>) {
    this.#transport = transport;
  }

  /**
   * @param response the response of the request
   * @param use makes at most one push
   * @throws Problem `overloaded`
   */
  async make<Result>(
    instance_id: string,
    response: ServerResponse,
    use: (transport: Pick<WebhookTransport, 'pushFor'>) => Promise<Result>,
  ): Promise<Result> {
    const of_instance = this.#by_instance.get(instance_id) ?? 0;
    if (of_instance >= INSTANCE_PUSHES_MAX) throw overloaded(`${INSTANCE_PUSHES_MAX} webhook tests of this instance`);
    if (this.#pushes >= PUSHES_MAX) throw overloaded(`${PUSHES_MAX} webhook tests`);
    this.#by_instance.set(instance_id, of_instance + 1);
    this.#pushes++;
    const left = new AbortController();
    onClosed(response, () => left.abort());
    try {
      return await use({ pushFor: (push, timeout_ms) => this.#transport.pushFor(push, timeout_ms, left.signal) });
    } finally {
      this.#pushes--;
      const others = (this.#by_instance.get(instance_id) ?? 1) - 1;
      if (others > 0) this.#by_instance.set(instance_id, others);
      else this.#by_instance.delete(instance_id);
    }
  }
}

function overloaded(what: string): Problem {
  return new Problem('overloaded', `There are ${what} in progress. Try again when one has ended.`, {
    retry_after_s: RETRY_AFTER_S,
  });
}
