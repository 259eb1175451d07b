/** Whether the storage stalls: it neither completes a call nor fails. */
export interface Stall {
  /** A commit has been in progress for 3 seconds: new calls are refused until it returns. */
  readonly is_stalled: boolean;
  /** Whether reads wait too, because the engine runs one call after the other. */
  readonly holds_up_reading: boolean;
  /**
   * Called four times a second during a stall. `is_long`: the stall has lasted almost 6 seconds, and callers should
   * stop waiting.
   */
  onStall(listener: (is_long: boolean) => void): void;
}
