import type { Page } from './types.ts';

/** The place of a page in a list: spread it into the query. */
export interface PageStart {
  cursor?: string;
}

/**
 * Walks through a list page by page.
 *
 * @throws TypeError for a list without `next_cursor`, such as `listMessages`
 *
 *     for await (const page of pages((start) => client.listInstances({ health: 'down', ...start }))) …
 */
export async function* pages<T>(list: (start: PageStart) => Promise<Page<T>>): AsyncGenerator<T[], void, undefined> {
  let start: PageStart = {};
  for (;;) {
    const page = await list(start);
    yield page.data;
    if (page.next_cursor === null) return;
    if (page.next_cursor === undefined)
      throw new TypeError('this list has no next_cursor: client.allMessages walks through the messages of a meeting');
    start = { cursor: page.next_cursor };
  }
}

/**
 * Walks through a list item by item, and asks for the next page when it is needed.
 *
 *     for await (const instance of all((start) => client.listInstances({ health: 'down', ...start }))) …
 */
export async function* all<T>(list: (start: PageStart) => Promise<Page<T>>): AsyncGenerator<T, void, undefined> {
  for await (const page of pages(list)) yield* page;
}
