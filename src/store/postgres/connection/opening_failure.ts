import { parseDatabaseUrl } from '../../../domain/database_url.ts';
import { Problem } from '../../../domain/problem.ts';
import { StoreError } from '../../store_error.ts';
import { ConnectionLost, NO_SERVER } from './connection.ts';

/** An error that says why the database could not be opened, and what to do. It never contains the password. */
export function openingFailure(error: unknown, url: string): unknown {
  if (error instanceof Problem || !(error instanceof StoreError)) return error;
  const { servers } = parseDatabaseUrl(url)!;
  const { pathname, username } = new URL(servers[0]!.url);
  const where = servers.map((server) => server.where).join(', ');
  const database = decodeURIComponent(pathname.slice(1)) || decodeURIComponent(username);
  const { code, message } = error;
  if (code === NO_SERVER) {
    return new StoreError(
      'POSTGRES_UNREACHABLE',
      `No PostgreSQL that writes answers (${message}): start it, or set CONVOKE_DATABASE_URL to where it is.`,
    );
  }
  if (error instanceof ConnectionLost) {
    return new StoreError(
      'POSTGRES_UNREACHABLE',
      `PostgreSQL at ${where} does not answer (${code}: ${message}): start it, or set CONVOKE_DATABASE_URL to where it is.`,
    );
  }
  if (code === '3D000') {
    return new StoreError(
      'POSTGRES_NO_DATABASE',
      `There is no database ${JSON.stringify(database)} at ${where}: make it with CREATE DATABASE, or name another in CONVOKE_DATABASE_URL.`,
    );
  }
  if (code.startsWith('28')) {
    return new StoreError(
      'POSTGRES_REFUSED',
      `PostgreSQL at ${where} does not let ${JSON.stringify(decodeURIComponent(username))} in (${message}): put the right user and password into CONVOKE_DATABASE_URL.`,
    );
  }
  if (code === '42501') {
    return new StoreError(
      'POSTGRES_NOT_PERMITTED',
      `The user ${JSON.stringify(decodeURIComponent(username))} may not make tables in the database ${JSON.stringify(database)} (${message}): make it the owner of the database and, if another role made the tables, of the tables too (REASSIGN OWNED BY other_role TO this_role).`,
    );
  }
  return error;
}
