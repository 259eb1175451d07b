import Type from 'typebox';
import { RUNTIME_NAMES } from '../../domain/runtimes/runtimes.ts';
import { enumOf, named, nullable } from './fields.ts';

/** Stands for the value of a header that may be a credential. */
export const HIDDEN = '[hidden]';
/** Stands for the signature: somebody who has the signature could send the push again. */
export const SIGNATURE = '[signature]';

export const DeliveryPushSchema = Type.Object(
  {
    delivery_id: Type.String({ description: 'The id of the delivery, and the webhook-id of every attempt.' }),
    url: nullable(
      Type.String(),
      'The webhook_url of the instance as it is now. Null when it has none, is gone, or is not shown to this key.',
    ),
    runtime: nullable(
      enumOf(RUNTIME_NAMES, { description: 'A runtime.' }),
      'The runtime of the instance, which gets this push in a shape of its own. Null: the instance gets the push as it is here.',
    ),
    headers: Type.Unsafe<Record<string, string>>({
      type: 'object',
      additionalProperties: { type: 'string' },
      description: `The headers by their names. \`${HIDDEN}\` stands for a value of webhook_headers, \`${SIGNATURE}\` for the signature. Attempts differ in convoke-attempt, webhook-timestamp and webhook-signature only. The headers of the trace, those for replies, and convoke-missed are left out.`,
    }),
    body: Type.String({ description: 'The body: JSON, with the message as its sender wrote it.' }),
  },
  named('DeliveryPush', 'The request that an attempt of a delivery makes, without its secrets.'),
);
