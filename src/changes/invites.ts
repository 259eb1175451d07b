import type { Clock } from '../delivery/clock.ts';
import type { Engine } from '../delivery/engine.ts';
import type { ApiKey } from '../domain/api_key.ts';
import type { Invite } from '../domain/invite.ts';
import { changedEvent } from '../feed/events.ts';
import type { Feed } from '../feed/feed.ts';
import type { NewInvite, Redemption } from '../store/contract/invites.ts';
import type { Author } from './author.ts';
import { orReadAgain } from './in_doubt.ts';

export interface InviteChangesParts {
  keyring: { put(key: ApiKey): void };
  engine: Pick<Engine, 'instanceChanged' | 'invalidateInstance'>;
  feed: Pick<Feed, 'publish'>;
  clock: Clock;
}

/**
 * The feed has no event for invites, as it has none for keys. When an instance gets another owner, that is an event of
 * the instance.
 */
export class InviteChanges {
  readonly #parts: InviteChangesParts;

  constructor(parts: InviteChangesParts) {
    this.#parts = parts;
  }

  /** @throws Problem `quota_exceeded` */
  create(author: Author, invite: NewInvite): Promise<Invite> {
    const { invite_id: target_id, instance_id, meeting_ids } = invite;
    return author.storeFor({ target_id, details: { instance_id, meeting_ids } }).invites.create(invite);
  }

  /**
   * Returns null when there is no such invite.
   *
   * @throws Problem `invite_redeemed`
   */
  revoke(author: Author, invite_id: string): Promise<Invite | null> {
    return author.storeFor().invites.revoke(invite_id, this.#parts.clock.wall());
  }

  /**
   * Makes the key of an invite; null when the invite cannot be redeemed any more.
   *
   * @param key its id, and the digest of its token
   */
  async redeem(
    author: Pick<Author, 'storeFor'>,
    { invite_id: target_id, digest, instance_id, meeting_ids }: Invite,
    key: Pick<ApiKey, 'key_id' | 'digest'>,
  ): Promise<Redemption | null> {
    const { keyring, engine, feed, clock } = this.#parts;
    const now = clock.wall();
    const new_key = { name: target_id, scopes: ['instance' as const], meeting_ids, instance_id, expires_at: null };
    const { invites } = author.storeFor({ target_id, details: { key_id: key.key_id, instance_id, meeting_ids } });
    const redeeming = invites.redeem(digest, { ...key, ...new_key, created_at: now }, now);
    const redeemed = await orReadAgain(redeeming, () => engine.invalidateInstance(instance_id));
    if (redeemed === null) return null;
    if (redeemed.key !== null) keyring.put(redeemed.key);
    if (redeemed.instance !== null) {
      engine.instanceChanged(redeemed.instance, false);
      feed.publish(changedEvent(redeemed.instance, ['owner_key_id'], now));
    }
    return redeemed;
  }
}
