import {
  makeReplyToken,
  readReplyToken,
  type Replier,
  replyStanding,
  type ReplyToken,
} from '../../domain/reply_token.ts';
import type { QueuedDelivery } from '../../store/contract/deliveries.ts';
import type { DerivedSecrets } from '../../store/secrets/derived_secrets.ts';
import { REPLY_TOKEN_HEADER, REPLY_URL_HEADER } from '../transport/push.ts';

/** The path of the route that takes replies. */
export const REPLY_PATH = '/api/v1/replies/';

/** A delivery to an instance that may reply. */
type Replyable = Pick<QueuedDelivery, 'delivery_id' | 'accepted_at'>;

/** Lets instances reply later. When a change of the data key has ended, all earlier tokens are invalid. */
export class ReplyAccess {
  readonly #secrets: DerivedSecrets;
  readonly #base_url: () => string;

  /** @param base_url the URL at which receivers reach the service, without a path */
  constructor(secrets: DerivedSecrets, base_url: () => string) {
    this.#secrets = secrets;
    this.#base_url = base_url;
  }

  /** The headers of a push that let its instance reply later. */
  headersFor({ delivery_id, accepted_at }: Replyable, replier: Replier, wall_ms: number): Record<string, string> {
    const standing = replyStanding(replier);
    const secret = this.#secrets.newest;
    if (secret === undefined) return {};
    return {
      [REPLY_URL_HEADER]: `${this.#base_url()}${REPLY_PATH}`,
      [REPLY_TOKEN_HEADER]: makeReplyToken(secret, { delivery_id, accepted_at, standing }, wall_ms),
    };
  }

  /** Reads a token; null when it is not genuine, or has expired. Reads only memory. */
  read(token: string, wall_ms: number): ReplyToken | null {
    return readReplyToken(this.#secrets.all, token, wall_ms);
  }
}
