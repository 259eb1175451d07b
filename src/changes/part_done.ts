import { StoreError } from '../store/store_error.ts';

/** The storage failed in a step of a change, and earlier steps of the change are stored. */
export class PartDone extends StoreError {
  /** What the author does now, such as `repeat the call`. */
  readonly next: string;

  constructor({ code, message }: StoreError, next: string) {
    super(code, message);
    this.next = next;
  }
}

/**
 * Waits for a step of a change.
 *
 * @param next what the author does if the storage fails; null: no earlier step of the change is stored
 * @throws PartDone when the storage fails and an earlier step is stored
 */
export async function orPartDone<T>(step: Promise<T>, next: string | null): Promise<T> {
  try {
    return await step;
  } catch (error) {
    throw next !== null && error instanceof StoreError ? new PartDone(error, next) : error;
  }
}
