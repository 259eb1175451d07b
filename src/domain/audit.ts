/**
 * The audit log: who changed what, from where and when. Each entry contains the hash of the previous entry. So an entry
 * that is changed, removed, inserted or moved breaks the chain at its place.
 */
import { hash } from 'node:crypto';

export const AUDIT_ACTIONS = [
  'instance.register',
  'instance.update',
  'instance.hand_over',
  'instance.delete',
  'instance.rotate_secret',
  'instance.recover',
  'instance.webhook_test',
  'meeting.join',
  'meeting.leave',
  'membership.update',
  'meeting.update',
  'delivery.retry',
  'delivery.drop',
  'key.create',
  'key.rotate',
  'key.revoke',
  'portal_link.create',
  'invite.create',
  'invite.redeem',
  'invite.revoke',
  'session.begin',
  'session.end',
  'encryption.reencrypt',
  'authenticate',
  'service.start',
  'service.backup',
  'service.import',
  'audit.prune',
  'demo.start',
  'demo.stop',
] as const;
export type AuditAction = (typeof AUDIT_ACTIONS)[number];

export const AUDIT_TARGETS = ['instance', 'meeting', 'delivery', 'key', 'invite', 'session', 'service'] as const;
export type AuditTarget = (typeof AUDIT_TARGETS)[number];

export const AUDIT_OUTCOMES = ['done', 'refused'] as const;
export type AuditOutcome = (typeof AUDIT_OUTCOMES)[number];

/** Names, numbers and ids; never a secret, and never the value of a field that may hold a secret. */
export type AuditDetails = Record<string, string | number | boolean | null | string[]>;

/** Who made a change, or tried to, and from which address; and what the change is about. */
export interface AuditSubject {
  /**
   * A key_id, or one of these words: `open`, `local command`, `sign-in link`, `invite link`, `service`, and `unknown`
   * when the request had no valid key.
   */
  principal: string;
  /**
   * Null when the service itself made the change, or a command that opens the data file itself; also when the address
   * is not known.
   */
  address: string | null;
  action: AuditAction;
  target_kind: AuditTarget;
  target_id: string | null;
  details: AuditDetails;
}

/** An entry that is not yet numbered and chained. */
export interface NewAuditEntry extends AuditSubject {
  outcome: AuditOutcome;
  /** The code of the problem, when the change was refused. */
  code: string | null;
}

/** An entry as it is hashed, returned and exported. */
export interface AuditEntry extends NewAuditEntry {
  /** From 1, without gaps. */
  seq: number;
  /** When the entry was written, as RFC 3339. */
  at: string;
  prev_hash: string;
  hash: string;
}

/**
 * The last entry. An auditor may keep a copy of this value elsewhere. With this copy, the auditor can prove later that
 * nobody changed or removed an entry that was in the log at that time.
 */
export interface AuditHead {
  seq: number;
  hash: string;
}

/** The `prev_hash` of the first entry. */
export const CHAIN_START = '0'.repeat(64);

/**
 * SHA-256 over the hash of the previous entry, a line feed, and the entry as canonical JSON without its two hashes.
 * Canonical JSON has its fields sorted by name at every level, and no spaces.
 */
export function hashOf({ prev_hash, ...entry }: Omit<AuditEntry, 'hash'>): string {
  return hash('sha256', `${prev_hash}\n${canonicalJson(entry)}`);
}

function hashOfEntry({ hash: _hash, ...entry }: AuditEntry): string {
  return hashOf(entry);
}

/** JSON with the fields sorted by name at every level and no spaces, so that equal values are equal texts. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) => {
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return part;
    return Object.fromEntries(Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  });
}

/** The place at which a chain breaks. */
export interface ChainFault {
  /** The first entry that was changed or is missing. */
  seq: number;
  reason: string;
}

/** The details of an entry `audit.prune`: all entries up to `removed_to` were removed, in the same transaction. */
export interface Removal {
  /** The number of entries that this prune removed. Earlier prunes may have removed other entries. */
  removed: number;
  removed_to: number;
  /** The hash of the last removed entry: the first remaining entry follows it. */
  removed_hash: string;
  /** When the last removed entry was written. */
  removed_until: string;
}

/** The entry for a prune, which has removed entries from the beginning of the log. */
export function removalEntry(removal: Removal): NewAuditEntry {
  return {
    principal: 'service',
    address: null,
    action: 'audit.prune',
    target_kind: 'service',
    target_id: null,
    outcome: 'done',
    code: null,
    details: { ...removal },
  };
}

/** Verifies a chain from the first remaining entry to the last. */
export class ChainVerifier {
  readonly #kept: AuditHead | null;
  /** The seq and hash of the entry before the first remaining entry. */
  #start: AuditHead = { seq: 0, hash: CHAIN_START };
  #head: AuditHead = this.#start;
  /** The details of the last entry `audit.prune`. */
  #removal: Partial<Removal> | null = null;

  /** @param kept a head that an auditor kept elsewhere: the chain must still contain it */
  constructor(kept: AuditHead | null = null) {
    this.#kept = kept;
  }

  get head(): AuditHead {
    return this.#head;
  }

  /** How many entries were removed, and when the newest of them was written; null when none was removed. */
  get removed(): { entries: number; until: string } | null {
    return this.#start.seq === 0 ? null : { entries: this.#start.seq, until: this.#removal?.removed_until ?? '' };
  }

  /** Checks the next entry in the order of seq; null when the entry continues the chain. */
  next(entry: AuditEntry): ChainFault | null {
    if (this.#head.seq === 0 && entry.seq > 1) this.#begin({ seq: entry.seq - 1, hash: entry.prev_hash });
    const seq = this.#head.seq + 1;
    if (entry.seq !== seq) return { seq, reason: `entry ${seq} is missing` };
    if (entry.prev_hash !== this.#head.hash) return { seq, reason: 'it does not follow the entry before it' };
    if (entry.hash !== hashOfEntry(entry)) return { seq, reason: 'it was changed' };
    if (seq === this.#kept?.seq && entry.hash !== this.#kept.hash) {
      return {
        seq,
        reason: 'it is not the head that was kept: the log was rewritten, up to here or earlier',
      };
    }
    this.#head = { seq, hash: entry.hash };
    if (entry.action === 'audit.prune') this.#removal = entry.details;
    return null;
  }

  /** The first entries are missing. Only the end of the log shows whether an `audit.prune` removed them. */
  #begin(start: AuditHead): void {
    this.#start = this.#head = start;
  }

  /** Call it after the last entry. Returns null when nothing is missing. */
  end(): ChainFault | null {
    const start = this.#start;
    if (start.seq > 0 && (this.#removal?.removed_to !== start.seq || this.#removal.removed_hash !== start.hash)) {
      return { seq: 1, reason: `entries 1 to ${start.seq} are missing, and no entry says that they were removed` };
    }
    if (this.#kept === null) return null;
    if (this.#kept.seq < start.seq || (this.#kept.seq === start.seq && this.#kept.hash !== start.hash)) {
      return {
        seq: this.#kept.seq,
        reason: `whether it is as it was cannot be said: entries 1 to ${start.seq} were removed when their retention had ended`,
      };
    }
    if (this.#head.seq >= this.#kept.seq) return null;
    const seq = this.#head.seq + 1;
    return { seq, reason: `the log ends before entry ${seq}, and it went on to ${this.#kept.seq}` };
  }
}
