/**
 * The settings of `convoke connect`. They are in one file for each instance, which only this user can read.
 */
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { MemberRules } from '../../../../domain/catch_up.ts';
import type { RuntimeSettings } from '../../../../domain/runtimes/runtimes.ts';
import { CommandFailure, EXIT } from '../../exit.ts';

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

/** The path of the file of an instance. */
export function connectionFile(instance_id: string): string {
  return join(configDirectory(), 'connections', `${fileName(instance_id)}.json`);
}

/** Turns an id into a part of the name of a file or a unit. */
export function fileName(instance_id: string): string {
  return encodeURIComponent(instance_id).replaceAll(/[^\w-]/g, '_');
}

/** @throws CommandFailure when there is no such file */
export async function readConnection(instance_id: string): Promise<Partial<Connection>> {
  const path = connectionFile(instance_id);
  try {
    return JSON.parse(await readFile(path, 'utf8')) as Partial<Connection>;
  } catch (error) {
    const is_missing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    const why = is_missing ? 'there is no saved connection of this name' : (error as Error).message;
    throw new CommandFailure(EXIT.usage, `${path}: ${why}`);
  }
}

/** @returns the path of the file */
export async function saveConnection(connection: Partial<Connection> & { instance_id: string }): Promise<string> {
  const path = connectionFile(connection.instance_id);
  await mkdir(join(configDirectory(), 'connections'), { recursive: true, mode: 0o700 });
  const draft = `${path}.${process.pid}`;
  await writeFile(draft, `${JSON.stringify(connection, null, 2)}\n`, { mode: 0o600 });
  // A file that exists already keeps its mode.
  await chmod(draft, 0o600);
  await rename(draft, path);
  return path;
}

function configDirectory(): string {
  return join(process.env['XDG_CONFIG_HOME'] || join(homedir(), '.config'), 'convoke');
}
