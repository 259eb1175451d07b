/** `convoke status` names the first instances that are down, also when a page of the search for them is empty. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Instance, ListInstancesQuery, SearchPage } from '@convoke/sdk';
import { downInWords } from '../../src/cli/program/commands/status.ts';

test('it searches on until it has as many as are down, and no further', async () => {
  const down = (instance_id: string) => ({ instance_id }) as Instance;
  const pages: Record<string, SearchPage<Instance>> = {
    first: { data: [], next_cursor: 'second', searched_to: 'b' },
    second: { data: [down('c'), down('d')], next_cursor: 'third', searched_to: 'e' },
    third: { data: [], next_cursor: null },
  };
  const asked: string[] = [];
  const client = {
    listInstances: async ({ cursor = 'first' }: ListInstancesQuery = {}) => {
      asked.push(cursor);
      return pages[cursor]!;
    },
  };
  assert.deepEqual(await downInWords(client, 2), { down: 'c; d' });
  assert.deepEqual(asked, ['first', 'second']);
  // The counts may be older than the list.
  assert.deepEqual(await downInWords(client, 3), { down: 'c; d; and 1 more' });
});
