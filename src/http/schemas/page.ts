/** Long lists are returned in pages. */
import Type, { type TSchema } from 'typebox';
import { expected, NO_CONTROLS_PATTERN, nullable, time } from './fields.ts';

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

const searchedTo = (place: 'time' | 'id'): string =>
  `Present when the search stopped before the page was full, because a request reads only so many rows: the search came to this ${place}. The page may be empty; next_cursor continues.`;

/** A page of a search. A search may end before it has read everything. */
export const searchPageOf = <T extends TSchema & { title?: string }>(item: T) => {
  const { properties, title } = pageOf(item) as ReturnType<typeof pageOf<T>> & { title: string };
  const searched_to = Type.Optional(time(searchedTo('time')));
  return Type.Object({ ...properties, searched_to }, { title, description: 'One page of a search.' });
};

/** A page of a list in the order of ids. With some filters the list is a search. */
export const idPageOf = <T extends TSchema & { title?: string }>(item: T) => {
  const { properties, title } = pageOf(item) as ReturnType<typeof pageOf<T>> & { title: string };
  const searched_to = Type.Optional(Type.String({ description: searchedTo('id') }));
  return Type.Object({ ...properties, searched_to }, { title, description: 'One page of a list.' });
};

export const textSearched = Type.Optional(
  Type.String({
    minLength: 1,
    maxLength: 200,
    pattern: NO_CONTROLS_PATTERN,
    description: 'Only messages whose JSON contains this text; capital letters from A to Z count as small letters.',
    ...expected('must be a string of 1 to 200 characters without control characters'),
  }),
);

export const limit = Type.Optional(
  Type.Integer({
    minimum: 1,
    maximum: 500,
    default: 50,
    description:
      'The most items of a page: 1 to 500, 50 when absent. A page of long rows has fewer; the response says whether there are more.',
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
