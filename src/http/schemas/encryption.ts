import Type from 'typebox';
import { named } from './fields.ts';

export const ReencryptionSchema = Type.Object(
  {
    key_id: Type.String({ description: 'The data key that encrypts secrets from now on.' }),
    rewritten: Type.Integer({ description: 'Instances whose secrets this call encrypted again.' }),
    done: Type.Boolean({ description: 'Whether the previous data key is dropped. While false, call again.' }),
  },
  named('Reencryption', 'The result of one step of changing the data key.'),
);
