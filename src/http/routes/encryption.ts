import type { Changes } from '../../changes/changes.ts';
import type { AuditTrail } from '../auth/audit_trail.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { responses } from '../responses.ts';
import { ReencryptionSchema } from '../schemas/encryption.ts';

export interface EncryptionContext {
  changes: Pick<Changes, 'service'>;
  audit_trail: Pick<AuditTrail, 'authorOf'>;
}

export function encryptionRoutes(app: App, context: EncryptionContext): void {
  app.post('/api/v1/encryption/reencrypt/', REENCRYPT, (request) => reencrypt(context, request));
}

const REENCRYPT = {
  config: { access: ['admin'], audit: { action: 'encryption.reencrypt', target: 'service' } },
  schema: {
    operationId: 'reencrypt',
    tags: ['service'],
    summary: 'Change the data key that encrypts stored secrets',
    description:
      'Makes a new key and encrypts every secret again while the service runs; continues a change that was begun. Call it until `done` is true.',
    response: responses({
      200: ['The progress.', ReencryptionSchema],
      codes: ['encryption_key_given', 'encryption_key_not_shared', 'encryption_key_not_written'],
    }),
  },
} satisfies RouteShape;

async function reencrypt({ changes, audit_trail }: EncryptionContext, request: RequestFor<typeof REENCRYPT>) {
  return changes.service.reencrypt(audit_trail.authorOf(request));
}
