/** `convoke audit list` looks for entries page by page: a page may be short, or empty, although more follow. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AuditEntry, ListAuditQuery, SearchPage } from '@convoke/sdk';
import { latest } from '../../src/cli/program/commands/audit.ts';

const entries = (...seqs: number[]) => seqs.map((seq) => ({ seq }) as AuditEntry);

test('it goes on until it has what was asked for, and says whether more follow', async () => {
  const pages: Record<string, SearchPage<AuditEntry>> = {
    first: { data: entries(9), next_cursor: 'second', searched_to: 't' },
    second: { data: [], next_cursor: 'third', searched_to: 't' },
    third: { data: entries(5, 4), next_cursor: null },
  };
  const asked: ListAuditQuery[] = [];
  const client = {
    listAudit: async (query: ListAuditQuery = {}) => {
      asked.push(query);
      const { data, next_cursor } = pages[query.cursor ?? 'first']!;
      const page = data.slice(0, query.limit);
      return { data: page, next_cursor: page.length < data.length ? 'behind' : next_cursor };
    },
  };
  const seqs = async (limit: number) => {
    const { data, next_cursor } = await latest(client, { action: 'key.revoke', limit });
    return [data.map(({ seq }) => seq), next_cursor];
  };
  assert.deepEqual(await seqs(3), [[9, 5, 4], null]);
  assert.deepEqual(
    asked.map(({ limit, cursor }) => [limit, cursor]),
    [
      [3, undefined],
      [2, 'second'],
      [2, 'third'],
    ],
  );
  assert.deepEqual(await seqs(2), [[9, 5], 'behind']);
  assert.deepEqual(await seqs(1), [[9], 'second']);
});
