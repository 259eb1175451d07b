import { createSecretKey, type KeyObject } from 'node:crypto';
import {
  makeReplyToken,
  readReplyToken,
  type Replier,
  replyStanding,
  type ReplyToken,
} from '../../domain/reply_token.ts';
import type { QueuedDelivery } from '../../store/contract/deliveries.ts';
import type { EncryptionStore } from '../../store/contract/encryption.ts';
import { REPLY_TOKEN_HEADER, REPLY_URL_HEADER } from '../transport/push.ts';

/** The path of the route that takes replies. */
export const REPLY_PATH = '/api/v1/replies/';

/** The purpose of the derived keys: one data key gives a different key for each purpose. */
const PURPOSE = 'reply tokens';

/** A delivery whose receiver may reply. */
type Replyable = Pick<QueuedDelivery, 'delivery_id' | 'accepted_at'>;

/**
 * Lets receivers reply later. The key of the tokens is derived from the data key, which all nodes share. So every node
 * accepts the tokens of the others, and a change of the data key invalidates all earlier tokens.
 */
export class ReplyAccess {
  readonly #store: Pick<EncryptionStore, 'derivedKeys'>;
  readonly #base_url: () => string;
  /** The first key makes tokens; the others are derived from data keys that are being replaced. */
  #keys: readonly KeyObject[] = [];

  /** @param base_url where receivers reach the service, without a path */
  constructor(store: Pick<EncryptionStore, 'derivedKeys'>, base_url: () => string) {
    this.#store = store;
    this.#base_url = base_url;
  }

  /** Reads the keys: before the first push, and whenever the data key changes. */
  async refresh(): Promise<void> {
    const keys = await this.#store.derivedKeys(PURPOSE);
    this.#keys = keys.map((key) => createSecretKey(key, 'base64'));
  }

  /** The headers of a push that let its receiver reply later. */
  headersFor({ delivery_id, accepted_at }: Replyable, replier: Replier, wall_ms: number): Record<string, string> {
    const standing = replyStanding(replier);
    const [key] = this.#keys;
    if (key === undefined) return {};
    return {
      [REPLY_URL_HEADER]: `${this.#base_url()}${REPLY_PATH}`,
      [REPLY_TOKEN_HEADER]: makeReplyToken(key, { delivery_id, accepted_at, standing }, wall_ms),
    };
  }

  /** Reads a token; null when it is not genuine, or has expired. Reads only memory. */
  read(token: string, wall_ms: number): ReplyToken | null {
    return readReplyToken(this.#keys, token, wall_ms);
  }
}
