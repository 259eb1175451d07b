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
  /** Until when the service ran, on the steady clock without the jump that is held. */
  ran_until: number;
}

/** When a delivery expires on the clock as it runs now. Later messages have larger ids. */
export function endOf(
  { message_id, expires_at }: { message_id: string; expires_at: number },
  { held_ms, held_up_to }: Hold,
): number {
  return held_up_to !== null && message_id <= held_up_to ? expires_at + held_ms : expires_at;
}
