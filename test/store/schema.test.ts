/** docs/schema/ has exactly the schema that the migrations make. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import pg from 'pg';
import { postgresSchema, sqliteSchema } from '../../scripts/schema.ts';
import { makeDatabase } from '../support/postgres.ts';

const written = (name: string): string => readFileSync(new URL(`../../docs/schema/${name}`, import.meta.url), 'utf8');
const STALE = 'stale: run `npm run generate` and commit what it writes';

test('docs/schema/sqlite.sql is what the migrations of SQLite make', () => {
  assert.equal(sqliteSchema(), written('sqlite.sql'), STALE);
});

test('docs/schema/postgres.sql is what the migrations of PostgreSQL make', async () => {
  assert.equal(await postgresSchema(await makeDatabase()), written('postgres.sql'), STALE);
});

test('control: one more index is seen', async () => {
  const url = await makeDatabase();
  const client = new pg.Client(url);
  await client.connect();
  await client.query('CREATE INDEX one_more ON meetings (last_activity_at)');
  await client.end();
  assert.notEqual(await postgresSchema(url), written('postgres.sql'));
});

test('both engines have the same tables, but for what only one of them needs', () => {
  const tablesOf = (text: string): string[] => [...text.matchAll(/^CREATE TABLE "?(\w+)/gm)].map(([, name]) => name!);
  const [sqlite, postgres] = [tablesOf(written('sqlite.sql')), tablesOf(written('postgres.sql'))];
  assert.deepEqual(
    sqlite.filter((name) => !postgres.includes(name)),
    ['this_file'],
  );
  const only_postgres = [
    'audit_head',
    'batches',
    'instance_count',
    'nodes',
    'partitions',
    'recipients',
    'runs',
    'schema_version',
    'sweeps',
    'this_database',
  ];
  assert.deepEqual(postgres.filter((name) => !sqlite.includes(name)).toSorted(), only_postgres);
});
