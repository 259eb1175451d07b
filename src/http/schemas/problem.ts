import Type from 'typebox';
import { named } from './fields.ts';

const FieldErrorSchema = Type.Object(
  {
    path: Type.String({ description: 'The field, dotted: `agent_ids.3`; empty for the body as a whole.' }),
    message: Type.String({ description: 'What the value must be.' }),
  },
  named('FieldError', 'One field that is not valid.'),
);

export const ProblemSchema = Type.Object(
  {
    type: Type.String({ description: '`urn:convoke:problem:` and the code.' }),
    title: Type.String({ description: 'The meaning of the code.' }),
    status: Type.Integer({ description: 'The status of the response.' }),
    detail: Type.String({ description: 'What went wrong in this case, and what to do.' }),
    code: Type.String({
      description: 'Stable: branch on this, and not on the text. docs/errors.md lists the codes.',
      examples: ['instance_does_not_exist'],
    }),
    errors: Type.Optional(Type.Array(FieldErrorSchema, { description: 'The fields that are not valid.' })),
  },
  named('Problem', 'An error: RFC 9457, application/problem+json.'),
);

const retry_after = Type.Integer({
  minimum: 0,
  description: 'How many seconds to wait before trying again; absent when unknown.',
});

/** Headers that come with the problems of a status. */
export const PROBLEM_HEADERS: Record<number, Record<string, Type.TSchema>> = {
  401: {
    'www-authenticate': Type.String({
      description: 'Bearer; with error="invalid_token" when a key was given (RFC 6750).',
    }),
  },
  429: { 'retry-after': retry_after },
  503: { 'retry-after': retry_after },
};
