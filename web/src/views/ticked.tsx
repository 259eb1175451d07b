/** Deliveries that the user ticked in a list, to be sent again together. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Delivery } from '@convoke/sdk';
import { doing } from '../parts/notice.tsx';
import type { Column } from '../parts/rows.tsx';
import { client } from '../service.ts';
import { counted } from '../format.ts';

/** The most deliveries of one request. */
const CHOSEN_MAX = 500;

export interface Ticks {
  /** The instance of each delivery. */
  ticked: ReadonlyMap<string, string>;
  toggle: (delivery: Delivery) => void;
  clear: () => void;
}

export function useTicks(): Ticks {
  const [ticked, setTicked] = useState<ReadonlyMap<string, string>>(new Map());
  const toggle = ({ delivery_id, instance_id }: Delivery): void =>
    setTicked((before) => {
      const after = new Map(before);
      if (!after.delete(delivery_id)) after.set(delivery_id, instance_id);
      return after;
    });
  return { ticked, toggle, clear: () => setTicked(new Map()) };
}

/** Whether a delivery can be queued again: the same rule as `mayQueueAgain` of the service. */
function mayQueueAgain({ state, reason }: Delivery): boolean {
  return state === 'failed' || (state === 'cancelled' && reason !== 'instance_deleted');
}

/** The columns, with a box to tick in the first one when any of the rows can be ticked. */
export function withTicks(
  columns: readonly Column<Delivery>[],
  { ticked, toggle }: Ticks,
  rows: readonly Delivery[],
): Column<Delivery>[] {
  if (!rows.some(mayQueueAgain)) return [...columns];
  return columns.map((column, i) =>
    i > 0
      ? column
      : {
          ...column,
          cell: (delivery) => (
            <span class="tick">
              {mayQueueAgain(delivery) ? (
                <input
                  type="checkbox"
                  checked={ticked.has(delivery.delivery_id)}
                  aria-label={`Tick ${delivery.meeting_id} #${delivery.seq} to ${delivery.instance_id}`}
                  onChange={() => toggle(delivery)}
                />
              ) : (
                <span class="tick-none" />
              )}
              {column.cell(delivery)}
            </span>
          ),
        },
  );
}

/** A button that sends the ticked deliveries again. Shows nothing while no delivery is ticked. */
export function ResendTicked({ ticks }: { ticks: Ticks }): JSX.Element | null {
  const { ticked, clear } = ticks;
  const [is_busy, setBusy] = useState(false);
  if (ticked.size === 0) return null;
  const send = async (): Promise<void> => {
    if (is_busy) return;
    setBusy(true);
    const sent = await doing(resend(ticked), (count) => resentInWords(count, ticked.size));
    setBusy(false);
    // After a failure the ticks stay, for another press.
    if (sent !== null) clear();
  };
  return (
    <>
      <button type="button" class="button primary" aria-disabled={is_busy} onClick={() => void send()}>
        Resend {ticked.size.toLocaleString('en')} ticked
      </button>
      <button type="button" class="button" onClick={clear}>
        Untick all
      </button>
    </>
  );
}

async function resend(ticked: ReadonlyMap<string, string>): Promise<number> {
  let sent = 0;
  for (const instance_id of new Set(ticked.values())) {
    const ids = [...ticked].filter(([, of]) => of === instance_id).map(([delivery_id]) => delivery_id);
    for (let at = 0; at < ids.length; at += CHOSEN_MAX) {
      const { recovered } = await client.recover(instance_id, { delivery_ids: ids.slice(at, at + CHOSEN_MAX) });
      sent += recovered;
    }
  }
  return sent;
}

function resentInWords(sent: number, ticked: number): string {
  if (sent === ticked) return `${counted(sent, 'delivery', 'deliveries')} will be sent again.`;
  return `${sent} of ${counted(ticked, 'delivery', 'deliveries')} will be sent again. The others were queued already.`;
}
