/**
 * Writes the files that are made from code: docs/settings.md, docs/errors.md, docs/licences.md, docs/schema/,
 * openapi.json, the types of the TypeScript SDK, and the models and methods of the Python SDK. With --check it writes
 * nothing and fails when one of them is stale. It does not check the schema of PostgreSQL, which needs a server:
 * test/store/schema.test.ts does.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { settingsTable } from '../src/config/settings_table.ts';
import { PROBLEMS } from '../src/domain/problem.ts';
import { openapiDocument } from './openapi.ts';
import { licencesTable } from './licences.ts';
import { pythonModels } from './python_models.ts';
import { pythonOperations } from './python_operations.ts';
import { sdkTypes } from './sdk_types.ts';
import { postgresSchema, sqliteSchema } from './schema.ts';

const ROOT = new URL('../', import.meta.url);

const document = await openapiDocument();

const texts: Record<string, string> = {
  'docs/settings.md': settingsTable(),
  'docs/errors.md': errorsTable(),
  'docs/licences.md': licencesTable(await readFile(new URL('package-lock.json', ROOT), 'utf8')),
  'docs/schema/sqlite.sql': sqliteSchema(),
  'openapi.json': `${JSON.stringify(document, null, 2)}\n`,
  'sdk/typescript/src/schemas.ts': await sdkTypes(document),
  'sdk/python/src/convoke_agents/models.py': pythonModels(document),
  'sdk/python/src/convoke_agents/operations.py': pythonOperations(document, false),
  'sdk/python/src/convoke_agents/async_operations.py': pythonOperations(document, true),
};

const is_check = process.argv.includes('--check');
if (!is_check) texts['docs/schema/postgres.sql'] = await schemaOfPostgres();

const stale: string[] = [];
for (const [path, text] of Object.entries(texts)) {
  const written = await readFile(new URL(path, ROOT), 'utf8').catch(() => null);
  if (written !== text) stale.push(path);
}

if (!is_check) {
  for (const path of stale) await writeFile(new URL(path, ROOT), texts[path]!);
  console.log(stale.length === 0 ? 'all up to date' : `written: ${stale.join(', ')}`);
} else if (stale.length > 0) {
  console.error(`stale: ${stale.join(', ')}; run \`npm run generate\` and commit what it writes`);
  process.exitCode = 1;
}

function errorsTable(): string {
  const rows = Object.entries(PROBLEMS).map(
    ([code, { status, title, advice }]) => `| \`${code}\` | ${status} | ${title} | ${advice} |\n`,
  );
  return (
    '# Errors\n\n' +
    'Every error response is `application/problem+json` ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)) with a\n' +
    '`code`. Let your program decide by the code, which is never renamed and never gets another meaning. `detail`\n' +
    'says what happened in this case, and `errors` lists the fields that are not valid, each with its `path` and a\n' +
    '`message`.\n\n' +
    '| code | status | meaning | what to do |\n| --- | --- | --- | --- |\n' +
    rows.join('')
  );
}

async function schemaOfPostgres(): Promise<string> {
  const { PostgresServer } = await import('../test/support/postgres_server.ts');
  const { migrateDatabase } = await import('../src/store/postgres/schema.ts');
  const server = await PostgresServer.start();
  try {
    await migrateDatabase(server.urlOf('postgres'));
    return await postgresSchema(server.urlOf('postgres'));
  } finally {
    await server.stop();
  }
}
