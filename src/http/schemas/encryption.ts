import Type from 'typebox';
import { named } from './fields.ts';

export const ReencryptionSchema = Type.Object(
  {
    key_id: Type.String({ description: 'The data key that encrypts secrets from now on.' }),
    rewritten: Type.Integer({ description: 'Instances whose secrets this call encrypted again.' }),
    unreadable: Type.Array(Type.String(), {
      description:
        'Instances whose secrets no data key decrypts, because their rows are damaged: at most 100. The previous data key is kept while there are any. Register each with a new `webhook_secret` and all `webhook_headers`, or delete it; then call again.',
    }),
    done: Type.Boolean({ description: 'Whether every other secret is under the new key. While false, call again.' }),
  },
  named('Reencryption', 'The result of one step of changing the data key.'),
);
