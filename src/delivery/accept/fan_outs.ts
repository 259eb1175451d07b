import { GenerationCache } from '../../domain/generation_cache.ts';
import type { AcceptedDelivery, NewMessage } from '../../store/contract/messages.ts';

/** The most meetings that are remembered. */
const MEETINGS_MAX = 20_000;
/** The weight of the latest message in the average over all meetings. */
const LATEST_WEIGHT = 0.01;
/**
 * When a message has fewer deliveries than remembered for its meeting, the remembered number shrinks to this share, but
 * not below the deliveries of the message.
 */
const KEPT_SHARE = 0.5;

type Addressed = Pick<NewMessage, 'meeting_id' | 'target_agents'>;

/** The deliveries of a message, and the characters of all their lists of agents. */
interface FanOut {
  deliveries: number;
  chars: number;
}

/** Remembers how many deliveries the last messages of each meeting had. */
export class FanOuts {
  readonly #of_meetings = new GenerationCache<FanOut>(MEETINGS_MAX);
  readonly #average: FanOut = { deliveries: 1, chars: 0 };

  /** How many deliveries a message will have: as many as the last messages of its meeting, or as an average message. */
  expected(message: Addressed): FanOut & { is_known: boolean } {
    const known = this.#of_meetings.get(nameOf(message));
    const { deliveries, chars } = known ?? this.#average;
    return { deliveries, chars, is_known: known !== undefined };
  }

  /** A message was stored with these deliveries. */
  note(message: Addressed, queued: readonly AcceptedDelivery[]): void {
    const deliveries = queued.length;
    const chars = queued.reduce((sum, { target_agents }) => sum + target_agents.length, 0);
    const average = this.#average;
    average.deliveries += (deliveries - average.deliveries) * LATEST_WEIGHT;
    average.chars += (chars - average.chars) * LATEST_WEIGHT;
    const name = nameOf(message);
    const before = this.#of_meetings.get(name);
    if (before?.deliveries === deliveries && before.chars === chars) return;
    this.#of_meetings.set(name, {
      deliveries: Math.max(deliveries, (before?.deliveries ?? 0) * KEPT_SHARE),
      chars: Math.max(chars, (before?.chars ?? 0) * KEPT_SHARE),
    });
  }
}

/**
 * Messages with `target_agents` go to fewer instances than the other messages of their meeting. So they are remembered
 * under a name of their own. No meeting has that name, because no id contains a line feed.
 */
function nameOf({ meeting_id, target_agents }: Addressed): string {
  return target_agents === null ? meeting_id : `${meeting_id}\n`;
}
