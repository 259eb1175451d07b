/** The few figures of /metrics that no list has. */

export interface Figures {
  pending: number | null;
  oldest_pending_s: number | null;
  in_flight: number | null;
}

/** Reads Prometheus text; null for a figure that is missing. */
export function figuresOf(text: string): Figures {
  const figure = (name: string): number | null => {
    const found = new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1];
    const value = Number(found);
    return found === undefined || !Number.isFinite(value) ? null : value;
  };
  return {
    pending: figure('convoke_deliveries_pending'),
    oldest_pending_s: figure('convoke_oldest_pending_seconds'),
    in_flight: figure('convoke_attempts_in_flight'),
  };
}
