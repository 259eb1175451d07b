/** What travels between the thread that calls the store and the thread that owns the file. */
import { type FieldError, Problem, type ProblemCode } from '../../domain/problem.ts';
import { StoreError } from '../store.ts';
import type { Operations } from './operations.ts';

/** One call of a store method, as it travels to the thread that owns the file. */
export interface Call {
  id: number;
  noun: keyof Operations;
  method: string;
  args: unknown[];
}

/** Its answer. Errors are plain data, because classes do not survive the way between threads. */
export interface Reply {
  id: number;
  value?: unknown;
  problem?: { code: ProblemCode; detail: string; errors: FieldError[] | undefined };
  store_error?: { code: string; message: string };
  defect?: string;
}

/** The error that a failed reply stands for; null when it succeeded. */
export function errorOf(reply: Omit<Reply, 'id'>): Error | null {
  if (reply.problem !== undefined) {
    const { code, detail, errors } = reply.problem;
    return new Problem(code, detail, errors === undefined ? {} : { errors });
  }
  if (reply.store_error !== undefined) return new StoreError(reply.store_error.code, reply.store_error.message);
  if (reply.defect !== undefined) return new Error(`the store failed: ${reply.defect}`);
  return null;
}
