/** Pauses an instance and resumes it, and explains what happens to pending deliveries and to new messages. */
import type { JSX } from 'preact';
import type { Instance, UpdateInstanceInput } from '@convoke/sdk';
import { Mark } from '../parts/mark.tsx';
import { doing } from '../parts/notice.tsx';
import { client } from '../service.ts';
import { counted } from '../format.ts';

export function isPaused({ is_active, webhook_enabled }: Pick<Instance, 'is_active' | 'webhook_enabled'>): boolean {
  return !(is_active && webhook_enabled);
}

/** The note of a paused instance; nothing otherwise. */
export function PausedNote({ instance }: { instance: Instance }): JSX.Element | null {
  if (!isPaused(instance)) return null;
  const { pending_deliveries, last_failure } = instance;
  const is_gone = !instance.webhook_enabled && last_failure?.outcome === 'gone';
  return (
    <p class="advice">
      <Mark kind="off" />
      <span>
        {is_gone ? 'Paused, because its receiver responded 410 Gone. ' : 'Paused. '}
        {heldInWords(pending_deliveries)} New messages are not queued for it.
        <span class="advice-what">
          When you resume it, held deliveries go out in order. Messages that arrived meanwhile stay in the history of
          its meetings.
        </span>
      </span>
    </p>
  );
}

export function PauseButton({ instance, again }: { instance: Instance; again: () => void }): JSX.Element {
  const { instance_id, is_active, webhook_enabled, pending_deliveries } = instance;
  const update = (changes: UpdateInstanceInput): Promise<Instance> => client.updateInstance(instance_id, changes);
  if (isPaused(instance)) {
    const was_off = { ...(!is_active && { is_active }), ...(!webhook_enabled && { webhook_enabled }) };
    const undo = (): Promise<void> => update(was_off).then(again);
    return (
      <button
        type="button"
        class="button"
        onClick={() =>
          void doing(
            update({ is_active: true, webhook_enabled: true }),
            () => 'Resumed. Held deliveries go out in order.',
            undo,
          ).then(again)
        }
      >
        Resume
      </button>
    );
  }
  const undo = (): Promise<void> => update({ webhook_enabled: true }).then(again);
  return (
    <button
      type="button"
      class="button"
      title="Holds pending deliveries. New messages are not queued for it while it is paused."
      onClick={() =>
        void doing(
          update({ webhook_enabled: false }),
          () => `Paused. ${heldInWords(pending_deliveries)} New messages are not queued.`,
          undo,
        ).then(again)
      }
    >
      Pause
    </button>
  );
}

/**
 * Says how many pending deliveries a paused instance holds. It holds them until they expire: after 72 hours, unless a
 * setting or a message names another time.
 */
function heldInWords(pending: number): string {
  if (pending === 0) return 'Nothing is pending.';
  return `${counted(pending, 'pending message is', 'pending messages are')} held.`;
}
