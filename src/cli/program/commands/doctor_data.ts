/**
 * The checks of `convoke doctor` on the data: the directory, the database, the key, the disk, and whether the clock is
 * far ahead of the service's last run.
 */
import { access, constants, stat, statfs } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Config } from '../../../config/config.ts';
import { systemClock } from '../../../delivery/clock.ts';
import { Expiry } from '../../../delivery/expiry.ts';
import { isMostlyEmpty } from '../../../delivery/maintenance.ts';
import type { ClockNote } from '../../../domain/clock_hold.ts';
import { readKeyFile } from '../../../store/secrets/key_file.ts';
import { TIME_NOTED } from '../../../store/sqlite/deliveries.ts';
import { lookAt } from '../../../store/sqlite/file/reading.ts';
import { MIGRATIONS } from '../../../store/sqlite/migrations.ts';
import { StoreError } from '../../../store/store_error.ts';
import { typed } from '../command_name.ts';
import { dataFile, keyFile, nearestThatExists } from '../data_directory.ts';
import { bytesInWords, durationInWords } from '../format.ts';
import { isSystemError } from '../system_error.ts';
import { type Check, ok } from './doctor_check.ts';

const FREE_BYTES_WARN = 1 << 30;
const FREE_BYTES_FAIL = 100 << 20;

/** @param is_answered whether a service responds at the address of these settings */
export async function checkDirectory(config: Config, is_answered: boolean): Promise<Check> {
  const check = 'data directory';
  const directory = resolve(config.data);
  const exists = await nearestThatExists(directory);
  try {
    if (!(await stat(exists)).isDirectory()) {
      return { check, finding: 'fail', detail: `${exists} is not a directory`, advice: 'give one with --data' };
    }
    await access(exists, constants.W_OK | constants.X_OK);
  } catch {
    return {
      check,
      finding: 'fail',
      detail: `this user may not write ${exists}`,
      advice: 'change its owner, or give another directory with --data',
    };
  }
  if (exists !== directory) return ok(check, `${directory} is missing and can be created`);
  const { state, schema, empty_bytes, fault } = await stateOfFile(dataFile(directory));
  if (state === 'in use' && !is_answered) {
    const detail = `${dataFile(directory)} is in use, and ${config.host}:${config.port} does not respond`;
    return {
      check,
      finding: 'warn',
      detail,
      advice: 'a service on another port may use it; a second service needs its own --data',
    };
  }
  if (fault !== null) return { check, finding: 'fail', detail: fault, advice: '' };
  if (state === 'unreadable') {
    const detail = `${dataFile(directory)} is not a data file of Convoke`;
    return {
      check,
      finding: 'fail',
      detail,
      advice: 'restore it from a backup, or give another directory with --data',
    };
  }
  if (schema > MIGRATIONS.length) return isNewer(check, schema, MIGRATIONS.length);
  if (empty_bytes !== null) {
    const detail = `${bytesInWords(empty_bytes)} of the data file are empty, most of it`;
    return { check, finding: 'warn', detail, advice: `\`${typed('compact')}\` makes it smaller` };
  }
  return ok(check, `${directory} is writable; the data file is ${state}`);
}

function isNewer(check: string, present: number, wanted: number): Check {
  const detail = `the schema is ${present}, and this Convoke knows up to ${wanted}`;
  return { check, finding: 'fail', detail, advice: 'start the newer version that made it' };
}

/** Whether a start now would distrust the clock. Finds nothing while a service has the data file open. */
export async function checkLastRun({ data, database_url, expire_after_ms, trust_clock }: Config): Promise<Check[]> {
  const clock = systemClock();
  const expiry = new Expiry(clock, expire_after_ms);
  expiry.begin(database_url === null ? await lastRunOf(dataFile(resolve(data))) : null, trust_clock, null);
  const held_ms = expiry.heldAt(clock.now());
  if (held_ms === 0) return [];
  const detail = `it is ${durationInWords(held_ms)} ahead of the last run of the service`;
  const advice =
    'set it if it is wrong; if it is right, start once with CONVOKE_TRUST_CLOCK=true, or pending deliveries keep their remaining time';
  return [{ check: 'last run', finding: 'warn', detail, advice }];
}

/** @returns null when the file does not say when the service last ran, or a service has the file open */
async function lastRunOf(file: string): Promise<ClockNote | null> {
  if ((await stateOfFile(file)).state !== 'not in use') return null;
  try {
    const noted = lookAt(file, (db) => db.prepare(TIME_NOTED).get());
    return (noted as ClockNote | undefined) ?? null;
  } catch {
    // An older version wrote the file.
    return null;
  }
}

/** Opens the file for reading only. That finds a lock of a running service without disturbing the service. */
async function stateOfFile(file: string): Promise<{
  state: 'not there yet' | 'not in use' | 'in use' | 'unreadable';
  /** How many steps of the migrations the file has taken; 0 when that is not known. */
  schema: number;
  /** The empty bytes of a file that is mostly empty and does not shrink by itself; otherwise null. */
  empty_bytes: number | null;
  /** Another reason why the file cannot be used, and what to do; null when none is known. */
  fault: string | null;
}> {
  const { size } = await stat(file).catch(() => ({ size: 0 }));
  if (size === 0) return { state: 'not there yet', schema: 0, empty_bytes: null, fault: null };
  try {
    return lookAt(file, (db) => {
      const number = (pragma: string): number => Number(Object.values(db.prepare(`PRAGMA ${pragma}`).get()!)[0]);
      const space = {
        page_bytes: number('page_size'),
        pages: number('page_count'),
        free_pages: number('freelist_count'),
      };
      const is_empty = number('auto_vacuum') === 0 && isMostlyEmpty(space);
      const empty_bytes = is_empty ? space.free_pages * space.page_bytes : null;
      return { state: 'not in use', schema: number('user_version'), empty_bytes, fault: null };
    });
  } catch (error) {
    const is_busy = (error as { errcode?: number }).errcode === SQLITE_BUSY;
    const fault = error instanceof StoreError ? error.message : null;
    return { state: is_busy ? 'in use' : 'unreadable', schema: 0, empty_bytes: null, fault };
  }
}

const SQLITE_BUSY = 5;

/**
 * Whether a start could read the key. Only a start can find out whether the key fits the data, because the data file may
 * be in use now.
 */
export async function checkKey(config: Config): Promise<Check> {
  const check = 'data key';
  if (config.encryption_key !== null) return ok(check, 'given by CONVOKE_ENCRYPTION_KEY');
  const path = keyFile(config.data);
  const found = await stat(path).catch(() => null);
  if (found === null) {
    const has_data = await access(dataFile(config.data)).then(
      () => true,
      () => false,
    );
    if (!has_data) return ok(check, `${path} is not there yet: the first start makes it`);
    const detail = `${path} is missing, and the data file is there`;
    const advice = 'put it back from its backup; only a data file of version 0.1.0 needs none';
    return { check, finding: 'warn', detail, advice };
  }
  try {
    readKeyFile(path);
    return ok(check, `${path}; keep a copy of it apart from the data`);
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    return { check, finding: 'fail', detail: error.message, advice: '' };
  }
}

/** Whether a node could use the database. A node that cannot use it does not start. */
export async function checkDatabase(config: Config): Promise<Check[]> {
  if (config.database_url === null) return [];
  const check = 'database';
  const { schemaOf } = await import('../../../offline.ts');
  try {
    const { present, wanted, may_start } = await schemaOf(config);
    if (!may_start) return [isNewer(check, present, wanted)];
    const then = present < wanted ? `the next start brings it to ${wanted}` : `this Convoke wants ${wanted}`;
    return [ok(check, `PostgreSQL responds; the schema is ${present}, and ${then}`)];
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return [{ check, finding: 'fail', detail: error.message, advice: '' }];
  }
}

/** How much room is left for the data. */
export async function checkDisk(config: Config): Promise<Check> {
  const check = 'disk space';
  const { bavail, bsize } = await statfs(await nearestThatExists(resolve(config.data)));
  const free_bytes = bavail * bsize;
  const detail = `${bytesInWords(free_bytes)} are free for the data`;
  if (free_bytes >= FREE_BYTES_WARN) return ok(check, detail);
  const advice = 'free some space, or shorten CONVOKE_RETENTION_DELIVERIES and CONVOKE_RETENTION_MESSAGES';
  return { check, finding: free_bytes < FREE_BYTES_FAIL ? 'fail' : 'warn', detail, advice };
}
