/**
 * The settings of `convoke connect`. They are in one file for each instance, which only this user can read.
 */
import { createHash, randomUUID } from 'node:crypto';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { MemberRules } from '../../../../domain/catch_up.ts';
import { ACK_TIMEOUT_S } from '../../../../domain/instance.ts';
import { runtimeOf, type RuntimeSettings } from '../../../../domain/runtimes/runtimes.ts';
import { makeDirectory } from '../../data_directory.ts';
import { CommandFailure, EXIT } from '../../exit.ts';
import { isSystemError } from '../../system_error.ts';

/** An instance of the service that pulls for an agent runtime on this machine. */
export interface Connection {
  /** The URL of the service. */
  url: string;
  api_key: string | null;
  instance_id: string;
  instance_name: string;
  agent_ids: string[];
  /** The meetings to join at each start. */
  meeting_ids: string[];
  /** The URL of the runtime. */
  to: string;
  /**
   * Signs pushes, so that the runtime can verify them; absent: the service makes a secret that this machine does not
   * know.
   */
  webhook_secret?: string | undefined;
  /** Added to each push on this machine; the service never sees them. */
  headers: Record<string, string>;
  success_statuses: '200' | '2xx' | null;
  ack_timeout_s: number | null;
  /** Whether a reply in the runtime's response is sent in the meeting. */
  replies: boolean;
  /** The rules of the memberships; absent: the rules of an earlier join stay. */
  rules?: Partial<MemberRules> | undefined;
  /** The runtime that listens at `to`, if its requests have a shape of their own. */
  runtime?: RuntimeSettings | undefined;
}

/** How long the service waits for the result of a push, in seconds. */
export function ackTimeoutOf({ ack_timeout_s, runtime }: Pick<Connection, 'ack_timeout_s' | 'runtime'>): number {
  return ack_timeout_s ?? (runtime === undefined ? ACK_TIMEOUT_S : runtimeOf(runtime).timeout_s);
}

/** When an id cannot be a file name, at most this many of its characters begin the file name. A digest follows. */
const READABLE_CHARS_MAX = 40;
const DIGEST_CHARS = 16;
/** A draft is longer than most connections, so that a full disk is noticed before the service is asked for anything. */
const DRAFT_BYTES = 16 << 10;

/** The path of the file of an instance. */
export function connectionFile(instance_id: string): string {
  return join(directory(), `${fileName(instance_id)}.json`);
}

/** The path of the file in an earlier version, in which two ids could have the same file name. */
function formerFile(instance_id: string): string {
  return join(directory(), `${encodeURIComponent(instance_id).replaceAll(/[^\w-]/g, '_')}.json`);
}

/** Turns an id into a part of the name of a file or a unit. The result fits there, and no other id has the same. */
export function fileName(instance_id: string): string {
  if (/^[\w-]+$/.test(instance_id)) return instance_id;
  const digest = createHash('sha256').update(instance_id).digest('hex').slice(0, DIGEST_CHARS);
  return `${instance_id.replaceAll(/[^\w-]+/g, '_').slice(0, READABLE_CHARS_MAX)}.${digest}`;
}

/** @throws CommandFailure when there is no such file, or it is the file of another instance */
export async function readConnection(instance_id: string): Promise<Partial<Connection>> {
  const path = connectionFile(instance_id);
  const own = await readFrom(path);
  if (own !== null && own.instance_id !== instance_id) {
    throw new CommandFailure(EXIT.usage, `${path}: it is the connection of ${own.instance_id}, not of ${instance_id}`);
  }
  const found = own ?? (await readFrom(formerFile(instance_id)));
  if (found?.instance_id !== instance_id) {
    throw new CommandFailure(EXIT.usage, `${path}: there is no saved connection of this name`);
  }
  return found;
}

/** @returns null when there is no such file */
async function readFrom(path: string): Promise<Partial<Connection> | null> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as Partial<Connection>;
  } catch (error) {
    if (isSystemError(error) && ['ENOENT', 'ENAMETOOLONG'].includes(error.code)) return null;
    throw new CommandFailure(EXIT.usage, `${path}: ${(error as Error).message}`);
  }
}

/**
 * Makes a connection, and saves it. Begins the file first: the link of an invite works only once, so a link must not be
 * redeemed when its key cannot be saved.
 *
 * @returns the connection, and the path of its file
 * @throws CommandFailure when the file cannot be written; nothing was made then
 */
export async function saveConnection(
  make: () => Promise<Connection>,
): Promise<{ connection: Connection; path: string }> {
  const draft = await beginDraft();
  try {
    const connection = await make();
    const path = connectionFile(connection.instance_id);
    // The key of an invite is nowhere else: it is on disk before the file has its name.
    await writeFile(draft, `${JSON.stringify(connection, null, 2)}\n`, { flush: true });
    await rename(draft, path);
    return { connection, path };
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

async function beginDraft(): Promise<string> {
  const draft = join(directory(), `${randomUUID()}.draft`);
  try {
    await makeDirectory(directory());
    await writeFile(draft, ' '.repeat(DRAFT_BYTES), { mode: 0o600, flag: 'wx' });
    return draft;
  } catch (error) {
    await rm(draft, { force: true }).catch(() => {});
    throw new CommandFailure(
      EXIT.failed,
      `${directory()}: the connection cannot be saved there (${(error as NodeJS.ErrnoException).code}); let this user ` +
        'write there, or set XDG_CONFIG_HOME to another directory. Nothing was asked of the service: a link still works',
    );
  }
}

function directory(): string {
  return join(process.env['XDG_CONFIG_HOME'] || join(homedir(), '.config'), 'convoke/connections');
}
