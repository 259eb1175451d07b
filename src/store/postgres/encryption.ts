/**
 * The data keys of the database. All nodes must have the same key, and each checks its key when it opens the database.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { LEASE_MS } from '../../domain/partition.ts';
import { Problem } from '../../domain/problem.ts';
import { DataKeys, type KeySource } from '../secrets/data_keys.ts';
import {
  checkValueOf,
  encryptedAgain,
  passesCheck,
  SECRET_COLUMNS,
  type SecretRow,
} from '../secrets/instance_secrets.ts';
import { type DataKey, derivedKey, encryptedPrefix } from '../secrets/secret_cipher.ts';
import type { EncryptionStore } from '../contract/encryption.ts';
import { StoreError } from '../store_error.ts';
import { type Session, statement } from './database.ts';
import { NAMED_KEYS_STEPS } from './migrations.ts';

const CHECKED = statement('SELECT key_id, check_value FROM encryption_keys ORDER BY created_at');
const NOTE = statement(
  'INSERT INTO encryption_keys (key_id, check_value, created_at) VALUES ($key_id, $check_value, $created_at) ON CONFLICT DO NOTHING',
);
const FORGET_OTHERS = statement('DELETE FROM encryption_keys WHERE key_id <> $key_id');

const UNDER_ANOTHER_KEY = SECRET_COLUMNS.map((column) => `substr(${column}, 1, $chars::int) <> $prefix`).join(' OR ');
const NEXT_ROWS = statement(`
  SELECT instance_id, ${SECRET_COLUMNS.join(', ')} FROM instances
  WHERE instance_id > $after AND (${UNDER_ANOTHER_KEY}) ORDER BY instance_id LIMIT $limit FOR UPDATE`);
const ANY_ROW = statement(`SELECT 1 FROM instances WHERE ${UNDER_ANOTHER_KEY} LIMIT 1`);
const REWRITE = statement(
  `UPDATE instances SET ${SECRET_COLUMNS.map((column) => `${column} = $${column}`).join(', ')} WHERE instance_id = $instance_id`,
);

/** The nodes whose lease holds. A node that was killed counts as running until its lease ends. */
const RUNNING = statement(`
  SELECT address, key_ids, steps_known FROM nodes WHERE lease_until >= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint ORDER BY node_no`);

/** How often, and how many times, the nodes are read again while one of them has not named its keys yet. */
const UNNAMED_PAUSE_MS = 100;
const UNNAMED_TRIES_MAX = 40;

/**
 * Finds the data key, and compares it with the check values in the database. The very first node stores the check value
 * of its key there. No other node runs this function at the same time.
 *
 * @throws StoreError when the key is missing, is another key, may be read by other users, or is a new one that a running
 * node does not have
 */
export async function openDataKeys(session: Session, source: KeySource, wall_ms: number): Promise<DataKeys> {
  const checked = await session.all<{ key_id: string; check_value: string }>(CHECKED);
  const keys = loadedKeys(source, checked.length > 0);
  for (const { key_id, check_value } of checked) {
    const key = keys.keyOf(key_id);
    if (key === undefined || !passesCheck(key, check_value))
      throw misfit(
        keys,
        checked.map((each) => each.key_id),
        source,
      );
  }
  if (checked.every(({ key_id }) => key_id !== keys.current.key_id)) {
    if (checked.length > 0) await assertKnown(session, keys.current);
    await note(session, keys.current, wall_ms);
  }
  return keys;
}

/** A node without the new key could read no secret that this node encrypts. */
async function assertKnown(session: Session, { key_id }: DataKey): Promise<void> {
  const without = await nodeWhose(session, (key_ids) => !key_ids.includes(key_id));
  if (without === null) return;
  throw new StoreError(
    'ENCRYPTION_KEY_NOT_SHARED',
    `This node would encrypt under the data key ${key_id}, and ${without} does not have this key, so it could not read what this node writes. First give every node the new key as CONVOKE_ENCRYPTION_KEY_PREVIOUS beside the key in use, and then exchange the two on every node; or stop the other nodes. A node that was killed counts for ${LEASE_MS / 1000} s, and a node of an earlier version does not say which keys it has: upgrade it first.`,
  );
}

/**
 * Names a running node.
 *
 * @param isMeant gets the ids of the data keys of a node, the one that encrypts first; of a node of the previous version
 * there are none
 * @returns null when there is no such node
 */
async function nodeWhose(session: Session, isMeant: (key_ids: string[]) => boolean): Promise<string | null> {
  for (let tries = 1; ; tries++) {
    const nodes = await session.all<{ address: string; key_ids: string | null; steps_known: number }>(RUNNING);
    const found = nodes.find(({ key_ids }) => isMeant(key_ids?.split(' ') ?? []));
    if (found === undefined) return null;
    const is_new = found.key_ids === null && found.steps_known >= NAMED_KEYS_STEPS;
    if (!is_new || tries === UNNAMED_TRIES_MAX) return `the running node at ${found.address}`;
    await pause(UNNAMED_PAUSE_MS);
  }
}

function loadedKeys(source: KeySource, needed: boolean): DataKeys {
  try {
    return DataKeys.load(source, needed);
  } catch (error) {
    if (!(error instanceof StoreError) || error.code !== 'ENCRYPTION_KEY_MISSING' || source.kind !== 'file')
      throw error;
    throw new StoreError(
      error.code,
      `Other nodes encrypt webhook secrets in this database under a data key that this node does not have: give it as CONVOKE_ENCRYPTION_KEY, the same on every node, or copy the key file of the first node to ${source.path}.`,
    );
  }
}

function misfit(keys: DataKeys, needed: readonly string[], source: KeySource): StoreError {
  if (needed.length > 1) {
    return new StoreError(
      'ENCRYPTION_KEY_WRONG',
      `The data key does not fit: the key of this database is being changed, so webhook secrets are encrypted under the keys ${needed.join(' and ')}, and this node has ${keys.all.map(({ key_id }) => key_id).join(' and ')}: give both, as CONVOKE_ENCRYPTION_KEY and CONVOKE_ENCRYPTION_KEY_PREVIOUS, as on every node.`,
    );
  }
  const where = source.kind === 'file' ? `copy its key file to ${source.path}, or give the key` : 'give that one';
  return new StoreError(
    'ENCRYPTION_KEY_WRONG',
    `The data key does not fit: webhook secrets in this database are encrypted under the key ${needed[0]}, and this node has ${keys.current.key_id}; all nodes need the same: ${where} as CONVOKE_ENCRYPTION_KEY, or as CONVOKE_ENCRYPTION_KEY_PREVIOUS beside a new one to change it.`,
  );
}

/**
 * All nodes share the key, so operators change it in the settings. If a node made a new key by itself, the other nodes
 * could not decrypt its secrets.
 */
export function encryptionOperations(session: Session, { keys }: { keys: DataKeys }): EncryptionStore {
  const other = (): { chars: number; prefix: string } => {
    const prefix = encryptedPrefix(keys.current.key_id);
    return { chars: prefix.length, prefix };
  };

  async function keyIds(): Promise<{ key_id: string; previous_key_ids: string[] }> {
    const { key_id } = keys.current;
    const checked = await session.all<{ key_id: string }>(CHECKED);
    return { key_id, previous_key_ids: checked.flatMap((row) => (row.key_id === key_id ? [] : [row.key_id])) };
  }

  return {
    keyIds,
    async changeKey(wall_ms) {
      const { previous_key_ids } = await keyIds();
      if (previous_key_ids.length === 0) throw new Problem('encryption_key_given');
      const { key_id } = keys.current;
      const other_key = await nodeWhose(session, ([encrypting]) => encrypting !== key_id);
      if (other_key !== null)
        throw new Problem(
          'encryption_key_not_shared',
          `This node encrypts under the data key ${key_id}, and ${other_key} does not.`,
        );
      await note(session, keys.current, wall_ms);
      return keyIds();
    },
    async reencrypt(after, limit) {
      const rows = await session.all<SecretRow>(NEXT_ROWS, { after: after ?? '', limit, ...other() });
      const unreadable: string[] = [];
      for (const row of rows) {
        const { instance_id } = row;
        const again = encryptedAgain(keys, row);
        if (again === null) unreadable.push(instance_id);
        else await session.run(REWRITE, { instance_id, ...again });
      }
      const next = rows.length < limit ? null : rows.at(-1)!.instance_id;
      return { rewritten: rows.length - unreadable.length, unreadable, next };
    },
    async endChange() {
      if ((await session.one(ANY_ROW, other())) !== undefined) throw new Error('a row is still under the previous key');
      await session.run(FORGET_OTHERS, { key_id: keys.current.key_id });
    },
    derivedKeys: async (purpose) => keys.all.map((key) => derivedKey(key, purpose)),
    async forgetPreviousKey() {
      // There is nothing to drop, because the previous key is a setting.
    },
  };
}

async function note(session: Session, key: DataKey, created_at: number): Promise<void> {
  await session.run(NOTE, { key_id: key.key_id, check_value: checkValueOf(key), created_at });
}
