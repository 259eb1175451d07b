import type { SQLInputValue, SQLOutputValue, StatementSync } from 'node:sqlite';
import { reportDamaged } from '../rows/stored_values.ts';

type Row = Record<string, SQLOutputValue>;
type Values = [Record<string, SQLInputValue>] | SQLInputValue[];

/**
 * A prepared statement that can read any integer. With node:sqlite alone, a read of many rows fails when one value is
 * beyond 2^53.
 */
export class Statement {
  readonly #statement: StatementSync;
  readonly #reads: boolean;
  readonly #sql: string;

  constructor(statement: StatementSync, sql: string) {
    this.#statement = statement;
    this.#sql = sql;
    this.#reads = /^\s*(?:SELECT|WITH)\b/i.test(sql);
  }

  run(...values: Values) {
    return this.#statement.run(...(values as SQLInputValue[]));
  }

  get(...values: Values): Row | undefined {
    try {
      return this.#statement.get(...(values as SQLInputValue[]));
    } catch (error) {
      return this.#withAnyInteger(error, () => this.#statement.all(...(values as SQLInputValue[])))[0];
    }
  }

  all(...values: Values): Row[] {
    try {
      return this.#statement.all(...(values as SQLInputValue[]));
    } catch (error) {
      return this.#withAnyInteger(error, () => this.#statement.all(...(values as SQLInputValue[])));
    }
  }

  *iterate(...values: Values): Generator<Row> {
    let given = 0;
    try {
      for (const row of this.#statement.iterate(...(values as SQLInputValue[]))) {
        given++;
        yield row;
      }
    } catch (error) {
      const rows = this.#withAnyInteger(error, () => this.#statement.all(...(values as SQLInputValue[])));
      yield* rows.slice(given);
    }
  }

  #withAnyInteger(error: unknown, read: () => Row[]): Row[] {
    // A statement that writes must not run a second time.
    if (!this.#reads || (error as NodeJS.ErrnoException).code !== 'ERR_OUT_OF_RANGE') throw error;
    this.#statement.setReadBigInts(true);
    try {
      return read().map((row) => withNumbers(row, tableIn(this.#sql)));
    } finally {
      this.#statement.setReadBigInts(false);
    }
  }
}

/** The first table that the statement reads. For a join, the log names only this table. */
function tableIn(sql: string): string {
  return /\bFROM\s+"?(\w+)/i.exec(sql)?.[1] ?? 'a table';
}

function withNumbers(row: Row, table: string): Row {
  const numbers: Row = {};
  for (const [column, value] of Object.entries(row)) {
    if (typeof value !== 'bigint') {
      numbers[column] = value;
      continue;
    }
    const number = Number(value);
    numbers[column] = Math.max(-Number.MAX_SAFE_INTEGER, Math.min(number, Number.MAX_SAFE_INTEGER));
    if (!Number.isSafeInteger(number)) reportDamaged(table, column, nameOf(row));
  }
  return numbers;
}

/** The columns that identify a row, in any table. */
function nameOf(row: Row): string {
  const keys = Object.entries(row).filter(([column]) => /(?:_id|_no|^seq)$/.test(column));
  return JSON.stringify(Object.fromEntries(keys.map(([column, value]) => [column, String(value)])));
}
