/** Whether the storage stands still: it neither does what it is asked nor fails. */
export interface Stall {
  /** A commit has been in progress for 3 seconds: whoever comes is refused, until an answer comes. */
  readonly is_stalled: boolean;
  /** It stands still, and reads wait for writes. */
  readonly holds_up_reading: boolean;
  /** Is called again and again while it lasts. `is_long`: for 6 seconds, and who waits should not wait any more. */
  onStall(listener: (is_long: boolean) => void): void;
}
