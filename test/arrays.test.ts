/** Lists go to PostgreSQL in its binary format: what arrives must be what was sent. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import pg from 'pg';
import { test, type TestContext } from 'node:test';
import { bigints, ints, smallints, texts } from '../src/store/postgres/arrays.ts';
import { makeDatabase } from './support/postgres.ts';

const RUNS = 300;

async function connect(t: TestContext): Promise<pg.Client> {
  const client = new pg.Client(await makeDatabase({ migrated: false }));
  await client.connect();
  t.after(() => client.end());
  return client;
}

const lists: Record<string, { list: fc.Arbitrary<(string | number | null)[]>; encode: (values: unknown[]) => Buffer }> =
  {
    'bigint[]': {
      list: fc.array(fc.option(fc.maxSafeInteger())),
      encode: (values) => bigints(values as (number | null)[]),
    },
    'int[]': { list: fc.array(fc.integer()), encode: (values) => ints(values as number[]) },
    'smallint[]': {
      list: fc.array(fc.integer({ min: -(2 ** 15), max: 2 ** 15 - 1 })),
      encode: (values) => smallints(values as number[]),
    },
    'text[]': {
      list: fc.array(fc.option(fc.string({ unit: 'binary' }).map((text) => text.replaceAll('\0', '')))),
      encode: (values) => texts(values as (string | null)[]),
    },
  };

for (const [type, { list, encode }] of Object.entries(lists)) {
  test(`the server reads of a ${type} what was sent`, async (t) => {
    const client = await connect(t);
    await fc.assert(
      fc.asyncProperty(list, async (values) => {
        const { rows } = await client.query<{ json: (string | number | null)[] }>(
          `SELECT to_json($1::${type}) AS json, array_ndims($1::${type})`,
          [encode(values)],
        );
        assert.deepEqual(rows[0]!.json, values);
      }),
      { numRuns: RUNS },
    );
  });
}

test('a lone surrogate arrives as U+FFFD, and a NUL is refused', async (t) => {
  const client = await connect(t);
  const { rows } = await client.query<{ json: string[] }>('SELECT to_json($1::text[]) AS json', [
    texts(['a\ud800b', '\udc00', '😀']),
  ]);
  assert.deepEqual(rows[0]!.json, ['a\ufffdb', '\ufffd', '😀']);
  await assert.rejects(client.query('SELECT $1::text[]', [texts(['\0'])]), { code: '22021' });
});

test('what is no safe integer is refused, and does not become another number', () => {
  for (const value of [0.5, NaN, Infinity, 2 ** 53, 'soon', undefined]) {
    for (const encode of [bigints, ints, smallints]) assert.throws(() => encode([value as number]), RangeError);
  }
});
