/** Writes docs/schema/: the schemas that the migrations of both engines make, as SQL for readers. */
import pg from 'pg';
import { Database } from '../src/store/sqlite/database.ts';

const HEAD =
  '-- What the migrations make. Written by `npm run generate`; `test/store/schema.test.ts` holds it to them.\n';

export function sqliteSchema(): string {
  const db = new Database(':memory:');
  const rows = db
    .prepare('SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY tbl_name, type DESC, name')
    .all();
  db.close();
  return document(rows.map((row) => `${dedented(String(row['sql']))};`));
}

/**
 * Reads the schema from the catalogs of a database that contains nothing else, because the binaries for tests have no
 * pg_dump.
 */
export async function postgresSchema(url: string): Promise<string> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    const texts = async (query: string, values: unknown[] = []): Promise<string[]> =>
      (await client.query<{ text: string }>(query, values)).rows.map(({ text }) => text);
    const tables = await texts(TABLES);
    const parts: string[] = [];
    for (const table of tables) {
      const columns = [...(await texts(COLUMNS, [table])), ...(await texts(CONSTRAINTS, [table]))];
      const options = await texts(OPTIONS, [table]);
      const lines = columns.map((line) => `  ${line}`).join(',\n');
      parts.push(`CREATE TABLE ${table} (\n${lines}\n)${options.length === 0 ? '' : ` WITH (${options.join(', ')})`};`);
      const beside = [...(await texts(INDEXES, [table])), ...(await texts(TRIGGERS, [table]))];
      if (beside.length > 0) parts.push(beside.map((line) => `${line};`).join('\n'));
    }
    parts.push(...(await texts(VIEWS)));
    for (const sequence of await texts(SEQUENCES)) parts.push(`CREATE SEQUENCE ${sequence};`);
    for (const definition of await texts(FUNCTIONS)) parts.push(`${definition.trim()};`);
    return document(parts.map((part) => part.replaceAll('public.', '')));
  } finally {
    await client.end();
  }
}

const TABLES = `SELECT relname AS text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1`;

const COLUMNS = `
  SELECT concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN c.collname = 'C' THEN 'COLLATE "C"' END,
    CASE WHEN a.attnotnull THEN 'NOT NULL' END, CASE a.attidentity WHEN 'a' THEN 'GENERATED ALWAYS AS IDENTITY' END,
    'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)) AS text
  FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum LEFT JOIN pg_collation c ON c.oid = a.attcollation
  WHERE a.attrelid = $1::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`;

/** Leaves NOT NULL out: PostgreSQL lists it as a constraint only from version 18 on. */
const CONSTRAINTS = `
  SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint WHERE conrelid = $1::regclass AND contype <> 'n' ORDER BY contype DESC, conname`;

const OPTIONS = `SELECT unnest(reloptions) AS text FROM pg_class WHERE oid = $1::regclass`;

const INDEXES = `
  SELECT pg_get_indexdef(indexrelid) AS text FROM pg_index i
  WHERE indrelid = $1::regclass AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = i.indexrelid) ORDER BY 1`;

const TRIGGERS = `SELECT pg_get_triggerdef(oid) AS text FROM pg_trigger WHERE tgrelid = $1::regclass AND NOT tgisinternal ORDER BY 1`;

const VIEWS = `
  SELECT 'CREATE VIEW ' || viewname || ' AS' || chr(10) || definition AS text FROM pg_views WHERE schemaname = 'public' ORDER BY viewname`;

const SEQUENCES = `
  SELECT c.relname AS text FROM pg_class c WHERE c.relkind = 'S' AND c.relnamespace = 'public'::regnamespace
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i') ORDER BY 1`;

const FUNCTIONS = `
  SELECT pg_get_functiondef(oid) AS text FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY proname`;

function document(parts: string[]): string {
  return `${HEAD}\n${parts.join('\n\n')}\n`;
}

/** Removes the indentation that the SQL has in the migrations. */
function dedented(text: string): string {
  return text.replaceAll(/\n {2}/g, '\n').trim();
}
