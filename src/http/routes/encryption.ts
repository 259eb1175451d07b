import type { App, HttpContext } from '../context.ts';
import { responses } from '../responses.ts';
import { ReencryptionSchema } from '../schemas/encryption.ts';

/** Instances in one transaction: what arrives meanwhile waits for some 2 ms. */
const ROWS_PER_STEP = 50;
/** A call answers after about this time, well before a client or a proxy gives up. */
const CALL_MS_MAX = 2_000;

export function encryptionRoutes(app: App, { store, clock, audit_trail }: HttpContext): void {
  app.post(
    '/api/v1/encryption/reencrypt/',
    {
      config: { access: ['admin'], audit: { action: 'encryption.reencrypt', target: 'service' } },
      schema: {
        operationId: 'reencrypt',
        tags: ['service'],
        summary: 'Change the data key that secrets are encrypted under at rest',
        description:
          'Makes a new key and encrypts every secret anew while everything goes on; goes on with a change that was begun. Call it until `done` is true.',
        response: responses({ 200: ['How far it came.', ReencryptionSchema], codes: ['encryption_key_given'] }),
      },
    },
    async (request) => {
      const ends_at = clock.now() + CALL_MS_MAX;
      const { key_id } = await audit_trail.storeFor(request).encryption.changeKey(clock.wall());
      let rewritten = 0;
      for (let after: string | null = null; ;) {
        const step = await store.encryption.reencrypt(after, ROWS_PER_STEP);
        rewritten += step.rewritten;
        after = step.next;
        if (after === null) break;
        if (clock.now() >= ends_at) return { key_id, rewritten, done: false };
      }
      await store.encryption.endChange();
      await store.encryption.forgetFormerKey();
      return { key_id, rewritten, done: true };
    },
  );
}
