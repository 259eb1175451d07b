/**
 * Databases on a real PostgreSQL server; each call makes one. `npm test` starts one server for all files
 * (run_setup.ts). A file that runs alone starts its own server when its first test needs a database, and stops it at
 * its end. CONVOKE_TEST_DATABASE_URL names another server instead, whose user may make databases.
 */
import { randomBytes } from 'node:crypto';
import { after } from 'node:test';
import pg from 'pg';
import { migrateDatabase } from '../../src/store/postgres/schema.ts';
import { PostgresServer } from './postgres_server.ts';

/** The variable that names a running server by the URL of one of its databases. */
const GIVEN_SERVER = 'CONVOKE_TEST_DATABASE_URL';
/** The variable that names a database of that server with the schema of this version and without rows. */
const GIVEN_TEMPLATE = 'CONVOKE_TEST_TEMPLATE';

/** Gives a database a new tag, so that its ids differ from those of every other database. */
const ANOTHER_TAG = 'UPDATE this_database SET tag = substr(md5(gen_random_uuid()::text), 1, 8)';

interface Shared {
  /** The URL of the database from which others are made. */
  url: string;
  urlOf: (database: string) => string;
  /** Runs statements in that database. */
  administer: (...statements: string[]) => Promise<void>;
}

let shared: Promise<Shared> | null = null;
let template: Promise<string> | null = null;
const made: string[] = [];
let stop: () => Promise<void> = async () => {};

// This is at the top level, and not where the server starts: a hook belongs to the test in which it is made.
after(() => stop());

/**
 * Makes a database, empty or with the schema. It is dropped after the tests of the file.
 *
 * @param given.template the name of a database that nobody uses, which the new database copies
 */
export async function makeDatabase(given: { migrated?: boolean; template?: string } = {}): Promise<string> {
  const { urlOf, administer } = await sharedServer();
  const name = nameOfDatabase();
  if (given.template !== undefined) {
    await administer(`CREATE DATABASE ${name} TEMPLATE ${given.template}`);
  } else if (given.migrated ?? true) {
    template ??= makeTemplate();
    await administer(`CREATE DATABASE ${name} TEMPLATE ${await template}`);
    const client = new pg.Client(urlOf(name));
    await client.connect();
    await client.query(ANOTHER_TAG);
    await client.end();
  } else {
    await administer(`CREATE DATABASE ${name} ENCODING 'UTF8' TEMPLATE template0`);
  }
  return urlOf(name);
}

/** A database that a test gives back. */
export interface LentDatabase {
  url: string;
  /** Call this when all connections to the database are closed. */
  giveBack: () => void;
}

const given_back: string[] = [];
let reset: Promise<string> | null = null;

/**
 * Makes a database as `makeDatabase` does, or empties a database that was given back, which takes a twentieth of the
 * time. This is for tests that change only rows and not the schema.
 */
export async function lendDatabase(): Promise<LentDatabase> {
  const used = given_back.pop();
  const url = used ?? (await makeDatabase());
  const client = new pg.Client(url);
  await client.connect();
  try {
    // The first database was never used, so its contents are those of a new database.
    reset ??= resetOf(client);
    if (used !== undefined) await client.query(await reset);
    else await reset;
  } finally {
    await client.end();
  }
  return { url, giveBack: () => void given_back.push(url) };
}

/** Makes statements that give any database of this schema the contents of the new database of this connection. */
async function resetOf(client: pg.Client): Promise<string> {
  const ofEach = async (query: string): Promise<string[]> =>
    (await client.query<{ name: string }>(query)).rows.map(({ name }) => name);
  const tables = await ofEach(
    "SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace",
  );
  const sequences = await ofEach("SELECT sequencename AS name FROM pg_sequences WHERE schemaname = 'public'");
  const statements = sequences.map((sequence) => `ALTER SEQUENCE ${sequence} RESTART`);
  for (const table of tables) {
    const { rows } = await client.query<{ held: string | null }>(`SELECT json_agg(t)::text AS held FROM ${table} t`);
    statements.push(`DELETE FROM ${table}`);
    const held = rows[0]?.held;
    if (typeof held !== 'string') continue;
    const of_new = `json_populate_recordset(NULL::${table}, ${client.escapeLiteral(held)})`;
    statements.push(`INSERT INTO ${table} OVERRIDING SYSTEM VALUE SELECT * FROM ${of_new}`);
  }
  // Switches off triggers, which protect the audit log, and foreign keys, which require an order of the statements.
  return ['BEGIN', 'SET LOCAL session_replication_role = replica', ...statements, ANOTHER_TAG, 'COMMIT'].join('; ');
}

async function makeTemplate(): Promise<string> {
  const { urlOf, administer } = await sharedServer();
  const name = nameOfDatabase();
  await administer(`CREATE DATABASE ${name} ENCODING 'UTF8' TEMPLATE template0`);
  await migrateDatabase(urlOf(name));
  return name;
}

function nameOfDatabase(): string {
  const name = `convoke_test_${randomBytes(6).toString('hex')}`;
  made.push(name);
  return name;
}

/**
 * Starts one server, with one template, for all processes that start from now on.
 *
 * @returns a function that stops the server
 */
export async function serveAllFiles(): Promise<() => Promise<void>> {
  const { url } = await sharedServer();
  process.env[GIVEN_SERVER] = url;
  template ??= makeTemplate();
  process.env[GIVEN_TEMPLATE] = await template;
  return () => stop();
}

function sharedServer(): Promise<Shared> {
  shared ??= startShared();
  return shared;
}

async function startShared(): Promise<Shared> {
  const given = process.env[GIVEN_SERVER];
  if (given === undefined || given === '') {
    const server = await PostgresServer.start();
    process.once('exit', () => server.kill());
    stop = () => server.stop();
    return sharedAt(server.urlOf('postgres'));
  }
  const given_server = sharedAt(given);
  const given_template = process.env[GIVEN_TEMPLATE];
  if (given_template !== undefined) template = Promise.resolve(given_template);
  stop = () => given_server.administer(...made.map((name) => `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`));
  return given_server;
}

function sharedAt(url: string): Shared {
  return {
    url,
    urlOf(database) {
      const of_database = new URL(url);
      of_database.pathname = `/${database}`;
      return of_database.href;
    },
    async administer(...statements) {
      const client = new pg.Client(url);
      await client.connect();
      try {
        for (const statement of statements) await client.query(statement);
      } finally {
        await client.end();
      }
    },
  };
}
