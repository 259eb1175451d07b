/** Entries of the audit log for tests, and a check of their chain. */
import type { AuditEntry } from '@convoke/sdk';
import { type AuditHead, ChainVerifier, type NewAuditEntry } from '../../src/domain/audit.ts';

/** The seq at which the chain of entries is broken; null when it is not broken. */
export function faultIn(entries: readonly AuditEntry[], kept: AuditHead | null = null): number | null {
  const verifier = new ChainVerifier(kept);
  for (const entry of entries) {
    const fault = verifier.next(entry);
    if (fault !== null) return fault.seq;
  }
  return verifier.end()?.seq ?? null;
}

export const DAY_MS = 86_400_000;

/** An entry of one day. */
export function entryOf(n: number): NewAuditEntry {
  return {
    principal: 'open',
    address: '127.0.0.1',
    action: 'instance.register',
    target_kind: 'instance',
    target_id: `i${n}`,
    outcome: 'done',
    code: null,
    details: {},
  };
}
