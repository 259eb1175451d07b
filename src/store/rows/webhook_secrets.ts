/** The webhook secret of an instance and the earlier ones that still sign, encrypted under the data keys. */
import { assertOverlapLeft, type Earlier, earlierAfter } from '../../domain/rotation.ts';
import type { DataKeys } from '../secrets/data_keys.ts';
import { type SecretColumn, secretPlace } from '../secrets/instance_secrets.ts';
import { columnsOfEarlier, storedEarlier } from './earlier.ts';
import { reportDamaged } from './stored_values.ts';
import type { InstancesTable } from './tables.ts';

/** The columns with the webhook secret and the earlier ones. */
export const WEBHOOK_SECRETS = 'webhook_secret, previous_secret, previous_secret_until, earlier_secrets';
export type WebhookSecrets = Pick<
  InstancesTable,
  'webhook_secret' | 'previous_secret' | 'previous_secret_until' | 'earlier_secrets'
>;

export function webhookSecrets(keys: DataKeys) {
  /** The plain secret; null when it cannot be decrypted. A registration with a new secret then repairs the instance. */
  function secretOf(instance_id: string, encrypted: string): string | null {
    try {
      return keys.decrypt(encrypted, secretPlace('webhook_secret', instance_id));
    } catch {
      return null;
    }
  }

  /**
   * The earlier secrets, the newest first.
   *
   * @throws StoreError `SECRET_UNREADABLE` when the newest one cannot be decrypted
   */
  function earlierSecretsOf(instance_id: string, row: Omit<WebhookSecrets, 'webhook_secret'>): Earlier[] {
    if (row.previous_secret === null) return [];
    const newest = keys.decrypt(row.previous_secret, secretPlace('previous_secret', instance_id));
    const columns = { newest, until: row.previous_secret_until, list: listOf(instance_id, row.earlier_secrets) };
    return storedEarlier(columns, 'instances', 'earlier_secrets', instance_id);
  }

  /**
   * The plain list; null when it cannot be decrypted. A node of the previous version changes the data key without the
   * list, so the list may be under a key that is gone. The instance then still gets its pushes.
   */
  function listOf(instance_id: string, encrypted: string | null): string | null {
    if (encrypted === null) return null;
    try {
      return keys.decrypt(encrypted, secretPlace('earlier_secrets', instance_id));
    } catch {
      reportDamaged('instances', 'earlier_secrets', instance_id);
      return null;
    }
  }

  /** The earlier secrets; none when they cannot be decrypted. A new secret then repairs the instance. */
  function readableEarlierOf(instance_id: string, row: WebhookSecrets): Earlier[] {
    try {
      return earlierSecretsOf(instance_id, row);
    } catch {
      return [];
    }
  }

  /** @throws Problem `overlaps_in_progress` */
  function rotatedSecrets(
    instance_id: string,
    change: { row: WebhookSecrets; new_secret: string },
    overlap_ms: number,
    wall_ms: number,
  ): WebhookSecrets {
    assertOverlapLeft(readableEarlierOf(instance_id, change.row), overlap_ms, wall_ms);
    return secretsAfter(instance_id, change, overlap_ms, wall_ms);
  }

  /** The columns of an instance that gets a new secret. */
  function secretsAfter(
    instance_id: string,
    { row, new_secret }: { row: WebhookSecrets; new_secret: string },
    overlap_ms: number,
    wall_ms: number,
  ): WebhookSecrets {
    const readable = {
      current: secretOf(instance_id, row.webhook_secret),
      earlier: readableEarlierOf(instance_id, row),
    };
    const { newest, until, list } = columnsOfEarlier(earlierAfter(readable, overlap_ms, wall_ms));
    const encrypt = (column: SecretColumn, text: string): string =>
      keys.encrypt(text, secretPlace(column, instance_id));
    return {
      webhook_secret: encrypt('webhook_secret', new_secret),
      previous_secret: newest === null ? null : encrypt('previous_secret', newest),
      previous_secret_until: until,
      earlier_secrets: list === null ? null : encrypt('earlier_secrets', list),
    };
  }

  return { secretOf, earlierSecretsOf, rotatedSecrets, secretsAfter };
}
