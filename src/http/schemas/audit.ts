import Type from 'typebox';
import { AUDIT_ACTIONS, AUDIT_OUTCOMES, AUDIT_TARGETS, type AuditDetails } from '../../domain/audit.ts';
import { enumOf, instanceId, named, nullable, text, time, timeInput } from './fields.ts';
import { cursor, limit } from './page.ts';

const AuditAction = enumOf(AUDIT_ACTIONS, named('AuditAction', 'The action that was done or refused.'));

const PRINCIPALS =
  'open (no key is needed yet), local command (on the data file), sign-in link (printed by convoke serve), invite link, service, unknown (no right key)';

export const AuditEntrySchema = Type.Object(
  {
    seq: Type.Integer({ description: 'From 1, without gaps.' }),
    at: time('When it was done or refused.'),
    principal: Type.String({ description: `Who did it: a key_id, or ${PRINCIPALS}.` }),
    address: nullable(
      Type.String(),
      'The address of the client; the /64 of an anonymous IPv6 client. Null for a local command.',
    ),
    action: AuditAction,
    target_kind: enumOf(AUDIT_TARGETS, { description: 'The kind of the target.' }),
    target_id: nullable(Type.String(), 'The id of the target; null when the request named none.'),
    outcome: enumOf(AUDIT_OUTCOMES, { description: 'Whether it was done.' }),
    code: nullable(Type.String(), 'Why it was refused: the code of the problem; null when it was done.'),
    details: Type.Unsafe<AuditDetails>({
      type: 'object',
      additionalProperties: {
        anyOf: [
          { type: 'string' },
          { type: 'number' },
          { type: 'boolean' },
          { type: 'null' },
          { type: 'array', items: { type: 'string' } },
        ],
      },
      description: 'The names of the given fields and similar facts. Never a secret.',
    }),
    prev_hash: Type.String({ description: 'The hash of the previous entry; 64 zeros in the first one.' }),
    hash: Type.String({ description: 'SHA-256 over prev_hash, a line feed, and the other fields as canonical JSON.' }),
  },
  named('AuditEntry', 'Who did what to what, from where and when.'),
);

export const ListAuditQuery = Type.Object(
  {
    action: Type.Optional(AuditAction),
    key_id: text('Who did it: a key_id, or open, local command, sign-in link, invite link, service, unknown.'),
    instance_id: Type.Optional(instanceId('Only changes of this instance.')),
    since: Type.Optional(timeInput('At or after this time.', '2026-03-01T09:30:00Z')),
    until: Type.Optional(timeInput('Before this time.', '2026-03-01T09:30:00Z')),
    order: Type.Optional(
      enumOf(['newest', 'oldest'] as const, { description: 'Which entry comes first; newest when absent.' }),
    ),
    limit,
    cursor,
  },
  { additionalProperties: false },
);
