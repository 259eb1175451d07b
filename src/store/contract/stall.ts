/** Whether the storage stalls: it neither completes a call nor fails. */
export interface Stall {
  /** A commit has been in progress for 3 seconds: new calls are refused until it returns. */
  readonly is_stalled: boolean;
  /** The storage stalls in such a way that reads wait for writes. */
  readonly holds_up_reading: boolean;
  /** Called every half second during a stall. `is_long`: it has lasted 6 seconds, and callers should stop waiting. */
  onStall(listener: (is_long: boolean) => void): void;
}
