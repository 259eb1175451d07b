/** Long lists are returned in pages. */
import Type, { type TSchema } from 'typebox';
import { expected, nullable } from './fields.ts';

/** `{data, next_cursor}`: next_cursor is null on the last page. */
export const pageOf = <T extends TSchema & { title?: string }>(item: T) =>
  Type.Object(
    {
      data: Type.Array(item, { description: 'The items of this page.' }),
      next_cursor: nullable(
        Type.String({ description: 'A place in the list.' }),
        'Give it as cursor to get the next page; null on the last one.',
      ),
    },
    { title: `${item.title}Page`, description: 'One page of a list.' },
  );

export const limit = Type.Optional(
  Type.Integer({
    minimum: 1,
    maximum: 500,
    default: 50,
    description:
      'The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer, and next_cursor continues.',
    ...expected('must be a whole number from 1 to 500'),
  }),
);

export const cursor = Type.Optional(
  Type.String({
    minLength: 1,
    maxLength: 2000,
    pattern: '^[A-Za-z0-9_-]*$',
    description: 'next_cursor of the previous page; from the beginning when absent.',
    ...expected('must be the next_cursor of a page made with the same filters'),
  }),
);
