import type { Engine } from '../delivery/engine.ts';
import type { Clock } from '../delivery/clock.ts';
import { membershipChangedEvent, membershipEvent } from '../feed/events.ts';
import type { Feed } from '../feed/feed.ts';
import type { GivenRules, MeetingStore, Membership, MembershipPatch } from '../store/contract/meetings.ts';
import type { Author } from './author.ts';
import { orReadAgain } from './in_doubt.ts';

export interface MembershipChangesParts {
  engine: Pick<Engine, 'memberRulesChanged'>;
  feed: Pick<Feed, 'publish'>;
  clock: Clock;
}

/**
 * The store reads the memberships of a meeting when it stores a message, so the engine need not know who joins or
 * leaves. The engine must know when rules change, because it keeps the rules that it has read.
 */
export class MembershipChanges {
  readonly #parts: MembershipChangesParts;

  constructor(parts: MembershipChangesParts) {
    this.#parts = parts;
  }

  /** @throws Problem `instance_does_not_exist`, `quota_exceeded` */
  async join(
    author: Author,
    meeting_id: string,
    instance_id: string,
    agent_ids: string[],
    rules: GivenRules = {},
  ): ReturnType<MeetingStore['join']> {
    const { engine, feed, clock } = this.#parts;
    const { meetings } = author.storeFor({ details: { meeting_id } });
    const joining = meetings.join(meeting_id, instance_id, agent_ids, clock.wall(), author.owner_scope, rules);
    const joined = await orReadAgain(joining, () => engine.memberRulesChanged(instance_id));
    if (Object.values(rules).some((each) => each !== undefined)) engine.memberRulesChanged(instance_id);
    feed.publish(membershipEvent('instance.joined', instance_id, meeting_id, joined.membership.joined_at));
    return joined;
  }

  /**
   * Changes the fields that `patch` has. Null when the instance is not in the meeting now; an instance that has left
   * stays out.
   *
   * @throws Problem `quota_exceeded`
   */
  async change(
    author: Author,
    meeting_id: string,
    instance_id: string,
    patch: MembershipPatch,
  ): Promise<Membership | null> {
    const { engine, feed, clock } = this.#parts;
    const fields = Object.entries(patch).flatMap(([name, value]) => (value === undefined ? [] : [name]));
    const { meetings } = author.storeFor({ details: { meeting_id, fields } });
    const changing = meetings.changeMembership(meeting_id, instance_id, patch, author.owner_scope);
    const membership = await orReadAgain(changing, () => engine.memberRulesChanged(instance_id));
    if (membership === null) return null;
    engine.memberRulesChanged(instance_id);
    feed.publish(membershipChangedEvent(instance_id, meeting_id, fields, clock.wall()));
    return membership;
  }

  /** Returns null when there was no such membership. */
  async leave(author: Author, meeting_id: string, instance_id: string): ReturnType<MeetingStore['leave']> {
    const { feed, clock } = this.#parts;
    const { meetings } = author.storeFor({ details: { meeting_id } });
    const left = await meetings.leave(meeting_id, instance_id, clock.wall(), author.owner_scope);
    if (left !== null) feed.publish(membershipEvent('instance.left', instance_id, meeting_id, left.left_at));
    return left;
  }
}
