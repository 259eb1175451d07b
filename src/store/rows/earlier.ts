/** Reads and writes the earlier tokens of a key and the earlier secrets of an instance. */
import { type Earlier, EARLIER_MAX } from '../../domain/rotation.ts';
import { isCount, isObject, reportDamaged, valueOf } from './stored_values.ts';

/** The columns of the newest earlier value, and of all of them. A secret is not encrypted here. */
interface EarlierColumns {
  newest: string | null;
  until: number | null;
  /** Null when there is at most one earlier value. */
  list: string | null;
}

export function columnsOfEarlier(earlier: readonly Earlier[]): EarlierColumns {
  const [newest] = earlier;
  return {
    newest: newest?.value ?? null,
    until: newest?.until ?? null,
    list: earlier.length > 1 ? JSON.stringify(earlier) : null,
  };
}

/**
 * The earlier values, the newest first. A node of the previous version writes only the newest one, and leaves the list
 * as it was. So a list that begins with another value does not count.
 */
export function storedEarlier({ newest, until, list }: EarlierColumns, table: string, column: string, row: string) {
  if (newest === null) return [];
  const only: Earlier[] = [{ value: newest, until: until ?? 0 }];
  if (list === null) return only;
  const value = valueOf(list);
  if (Array.isArray(value) && value.length <= EARLIER_MAX && value.every(isEarlier)) {
    return value[0]?.value === newest && value[0].until === until ? value : only;
  }
  reportDamaged(table, column, row);
  return only;
}

function isEarlier(value: unknown): value is Earlier {
  return isObject(value) && typeof value['value'] === 'string' && isCount(value['until']);
}
