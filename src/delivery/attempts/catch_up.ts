import { type CatchUpReason, catchUpReason, hasRules } from '../../domain/catch_up.ts';
import type { RulesAtHead } from '../../store/contract/deliveries.ts';
import type { Store } from '../../store/store.ts';
import type { Clock } from '../clock.ts';
import type { Expiry } from '../expiry.ts';
import type { LaneDelivery } from '../lanes/lane_delivery.ts';
import type { Lane } from '../lanes/lane.ts';
import type { Recipient } from '../lanes/recipient.ts';
import { STEP_MS } from '../wall_steps.ts';
import { type HeadReadParts, readForHead } from './head_read.ts';

/**
 * The most deliveries that a read looks at. When more deliveries wait, the read may not find the newest message of a
 * person. Then that message supersedes no other, and all messages of people may be pushed. The read may also count
 * fewer missed messages than there are.
 */
const ROWS_MAX = 2_000;
/**
 * How long a read stays valid for a head that waited while its machine was away. Newer messages may arrive after the
 * read.
 */
const FRESH_MS = 1_000;

export interface CatchUpParts extends HeadReadParts {
  store: Pick<Store, 'deliveries'>;
  clock: Clock;
  expiry: Pick<Expiry, 'ageOf' | 'endOf'>;
  /** How long settled deliveries are kept. */
  kept_ms: number;
}

/** The facts that were read for a head. They hold for its lane until the lane or the registration changes. */
interface Known extends RulesAtHead {
  generation: number;
  version: number;
  seq: number;
  attempt_count: number;
  read_at: number;
}

/**
 * Judges the heads of lanes by the rules of their memberships. Only instances with such rules are judged: see
 * `Target.has_rules`. The rules and the waiting deliveries are read again for each head that is pushed, so a restart
 * loses nothing. One read is enough to cancel several heads, one after the other.
 */
export class CatchUp {
  readonly #parts: CatchUpParts;
  readonly #known = new WeakMap<Lane, Known>();

  constructor(parts: CatchUpParts) {
    this.#parts = parts;
  }

  /** Null: the head may be pushed. `unknown`: the rules and the waiting deliveries must be read first. */
  judge(recipient: Recipient, lane: Lane, head: LaneDelivery): CatchUpReason | 'unknown' | null {
    const known = this.#known.get(lane);
    if (known?.generation !== lane.generation || known.version !== recipient.registration.version) return 'unknown';
    if (!hasRules(known.rules)) return null;
    const { clock, expiry } = this.#parts;
    const now = clock.now();
    const { message_id, seq, accepted_at, expires_at, origin, attempt_count } = head;
    // `steadyOf` may be wrong by STEP_MS. In doubt the machine was there, and gets the message.
    const has_waited = clock.steadyOf(accepted_at) + STEP_MS < recipient.away_until;
    const is_of_agent = origin !== null && origin.from_agent !== null;
    const judged = { message_id, seq, expires_at, age_ms: expiry.ageOf(head, now), has_waited, is_of_agent };
    const reason = catchUpReason(judged, known.rules, known, (waiting) => expiry.endOf(waiting, now));
    if (reason !== null) return reason;
    // A newer delivery may have arrived since these facts were read for an earlier head, or for the last attempt.
    if (known.seq !== seq || known.attempt_count !== attempt_count) return 'unknown';
    if (has_waited && now - known.read_at > FRESH_MS) return 'unknown';
    head.missed = known.missed;
    return null;
  }

  /** Reads the facts that decide about the head, and offers the lane to the dispatcher again. */
  read(recipient: Recipient, lane: Lane, head: LaneDelivery): Promise<void> {
    const { store, clock, kept_ms } = this.#parts;
    const { generation } = lane;
    const { version } = recipient.registration;
    const { seq, attempt_count } = head;
    const read = (): Promise<RulesAtHead> =>
      store.deliveries.rulesAtHead(head, {
        known_since_ms: clock.wall() - kept_ms,
        rows_max: ROWS_MAX,
      });
    return readForHead(this.#parts, recipient, lane, read, (found) => {
      this.#known.set(lane, { ...found, generation, version, seq, attempt_count, read_at: clock.now() });
    });
  }
}
