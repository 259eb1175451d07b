/**
 * Compares the replies of machines with the messages of the meetings. The checker knows only two promises of Convoke: a
 * reply is stored once, and it is stored when the delivery that it answers counts as delivered.
 */

/** How a machine replies, and with how many replies to each push. */
export const REPLIES = { one: 1, three: 3, later: 1, pulled: 2 } as const;

/** A push to which a machine replied. A machine may reply several times to the same push. */
export interface Answered {
  webhook_id: string;
  message_id: string;
  how: keyof typeof REPLIES;
}

/** A reply in the history of its meeting. */
export interface StoredReply {
  meeting_id: string;
  message_id: string;
  from_agent: string | undefined;
  in_reply_to: string | undefined;
  /** The machine wrote two values into the reply: which push the reply answers, and its place among the replies to it. */
  answers: string;
  place: number;
}

export interface RepliesRecord {
  answered: Answered[];
  stored: StoredReply[];
  /** Every delivery that counts as delivered. */
  delivered: ReadonlySet<string>;
}

export interface ReplyFindings {
  /** Replies that are not stored, although their delivery counts as delivered. */
  missing: string[];
  /** Replies that are stored more than once. */
  twice: string[];
  /** Stored replies that no machine gave, that answer another message, or that another agent sent. */
  false: string[];
}

export function checkReplies({ answered, stored, delivered }: RepliesRecord): ReplyFindings {
  const of_push = new Map(answered.map((each) => [each.webhook_id, each]));
  const found: ReplyFindings = { missing: [], twice: [], false: [] };
  const counts = new Map<string, number>();
  for (const { answers, place, message_id, from_agent, in_reply_to } of stored) {
    const push = of_push.get(answers);
    const what = `${message_id}, reply ${place} to ${answers}`;
    if (push === undefined || place >= REPLIES[push.how]) found.false.push(`${what}: nobody said it`);
    else if (in_reply_to !== push.message_id) found.false.push(`${what}: it answers ${in_reply_to}`);
    else if (from_agent !== push.how) found.false.push(`${what}: ${from_agent} says it`);
    const key = `${answers} ${place}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  for (const [key, count] of counts) if (count > 1) found.twice.push(`${key} is there ${count} times`);
  for (const { webhook_id, how } of of_push.values()) {
    if (!delivered.has(webhook_id)) continue;
    for (let place = 0; place < REPLIES[how]; place++) {
      if (!counts.has(`${webhook_id} ${place}`)) found.missing.push(`reply ${place} to ${webhook_id} (${how})`);
    }
  }
  return found;
}
