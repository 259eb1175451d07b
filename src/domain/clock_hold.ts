/** A jump of the clock that does not count for the messages that were accepted before it was seen. */
export interface Hold {
  /** How far the clock jumped; 0: no jump is held. */
  held_ms: number;
  /** The start of the service at which the jump was seen. */
  held_since: number;
  /** The last message before that start. No clock decides which messages came later, because clocks are set. */
  held_up_to: string | null;
}

export const NO_HOLD: Hold = { held_ms: 0, held_since: 0, held_up_to: null };

/** What a running service notes from time to time, for its next start. */
export interface ClockNote extends Hold {
  /**
   * Until when the service ran, on the clock that the nodes share (see delivery/expiry.ts), without the jump that is
   * held.
   */
  ran_until: number;
}

/** How much of the time since a message was accepted does not count. Later messages have larger ids. */
export function heldOf(message_id: string, { held_ms, held_up_to }: Hold): number {
  return held_up_to !== null && message_id <= held_up_to ? held_ms : 0;
}

/** When a delivery expires on the clock as it runs now. */
export function endOf({ message_id, expires_at }: { message_id: string; expires_at: number }, hold: Hold): number {
  return expires_at + heldOf(message_id, hold);
}
