/** Whether the storage stalls: it neither completes a call nor fails. */
export interface Stall {
  /**
   * Whether a call has waited for 3 seconds. Only the calls in `StallSigns` count. Until the call gets its reply, new
   * messages and changes are refused.
   */
  readonly is_stalled: boolean;
  /** Whether reads are refused too, because the engine runs one call after the other. */
  readonly holds_up_reading: boolean;
  /**
   * Adds a listener, which is called four times a second during a stall. `is_long`: the stall has lasted
   * almost 6 seconds, and callers should stop waiting. `is_new`: the stall begins with this call.
   */
  onStall(listener: (is_long: boolean, is_new: boolean) => void): void;
}
