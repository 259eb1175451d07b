/** The store sends lists to PostgreSQL in PostgreSQL's binary format. The lists must arrive unchanged. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test, type TestContext } from 'node:test';
import { bigints, ints, type List, smallints, texts } from '../../src/store/postgres/connection/batch_message.ts';
import { Connection } from '../../src/store/postgres/connection/connection.ts';
import { makeDatabase } from '../support/postgres.ts';
import { WAIT_MS_MAX } from '../support/wait.ts';

const RUNS = 300;

const ANSWER_MS_MAX = WAIT_MS_MAX;

async function connect(t: TestContext): Promise<Connection> {
  const connection = await Connection.open(await makeDatabase({ migrated: false }));
  t.after(() => connection.close());
  return connection;
}

const lists: Record<string, { list: fc.Arbitrary<(string | number | null)[]>; encode: (values: unknown[]) => List }> = {
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
    const connection = await connect(t);
    await fc.assert(
      fc.asyncProperty(list, async (values) => {
        const { rows } = await connection.batch<{ json: string }>(
          `SELECT to_json($1::${type})::text AS json`,
          [encode(values)],
          ANSWER_MS_MAX,
        );
        assert.deepEqual(JSON.parse(rows[0]!.json), values);
      }),
      { numRuns: RUNS },
    );
  });
}

test('what is no list arrives as it is', async (t) => {
  const connection = await connect(t);
  const values = [7, 'a\u00e9', true, false, null, texts(['x'])];
  const { rows } = await connection.batch<{ json: string }>(
    'SELECT json_build_array($1::bigint, $2::text, $3::boolean, $4::boolean, $5::text, $6::text[])::text AS json',
    values,
    ANSWER_MS_MAX,
  );
  assert.deepEqual(JSON.parse(rows[0]!.json), [7, 'a\u00e9', true, false, null, ['x']]);
});

test('a batch larger than any before arrives whole, and so does a small one after it', async (t) => {
  const connection = await connect(t);
  for (const count of [1, 300_000, 2]) {
    const { rows } = await connection.batch<{ length: number; sum: number; bytes: number }>(
      "SELECT cardinality($1::bigint[]) AS length, (SELECT sum(n) FROM unnest($1) n) AS sum, octet_length(array_to_string($2::text[], '')) AS bytes",
      [bigints(Array.from({ length: count }, (_, i) => i)), texts(Array.from({ length: count }, () => '\u20ac'))],
      ANSWER_MS_MAX,
    );
    assert.deepEqual(rows[0], { length: count, sum: (count * (count - 1)) / 2, bytes: 3 * count });
  }
});

test('a statement that is refused leaves the connection to the next', async (t) => {
  const connection = await connect(t);
  const ask = (value: string) => connection.batch<{ n: number }>('SELECT $1::int AS n', [value], ANSWER_MS_MAX);
  await assert.rejects(ask('x'), { code: '22P02' });
  await assert.rejects(ask('y'), { code: '22P02' });
  assert.deepEqual((await ask('1')).rows, [{ n: 1 }]);
  await assert.rejects(connection.batch('SELECT no_such_thing', [], ANSWER_MS_MAX), { code: '42703' });
  assert.deepEqual((await ask('2')).rows, [{ n: 2 }]);
});

test('a lone surrogate arrives as U+FFFD, and a NUL is refused', async (t) => {
  const connection = await connect(t);
  const ask = (values: string[]) =>
    connection.batch<{ json: string }>('SELECT to_json($1::text[])::text AS json', [texts(values)], ANSWER_MS_MAX);
  const { rows } = await ask(['a\ud800b', '\udc00', '😀']);
  assert.deepEqual(JSON.parse(rows[0]!.json), ['a\ufffdb', '\ufffd', '😀']);
  await assert.rejects(ask(['\0']), { code: '22021' });
});

test('what is no safe integer is refused, and does not become another number', () => {
  for (const value of [0.5, NaN, Infinity, 2 ** 53, 'soon', undefined]) {
    for (const encode of [bigints, ints, smallints]) {
      assert.throws(() => encode([value as number]), RangeError);
    }
  }
});
