import type { Connection } from '../domain/instance.ts';
import type { ConnectionChange, InstanceStore } from '../store/contract/instances.ts';
import type { Clock, Timer } from './clock.ts';

/**
 * How long changes linger, so that one transaction writes many of them. When a node starts, thousands of machines
 * connect again at once.
 */
const LINGER_MS = 50;
const RETRY_MS = 500;
/** The most changes in one transaction. */
const BATCH_MAX = 500;

export interface ConnectionNotesParts {
  clock: Clock;
  store: { instances: Pick<InstanceStore, 'noteConnections'> };
  /** The epoch of the partition of an instance; null when another node delivers to it. */
  epochOf: (instance_id: string) => number | null;
  /** A change is stored: every read of the store sees it from now on. */
  onNoted: (instance_id: string, connection: Connection | null) => void;
  onError: (error: unknown) => void;
}

/** Writes which machines pull, so that every node can show it. Only the latest state of each instance is written. */
export class ConnectionNotes {
  readonly #parts: ConnectionNotesParts;
  #changes = new Map<string, ConnectionChange>();
  #timer: Timer | null = null;
  #is_stopped = false;

  constructor(parts: ConnectionNotesParts) {
    this.#parts = parts;
  }

  /** @param connection null when the machine no longer pulls */
  note(instance_id: string, connection: Connection | null): void {
    const epoch = this.#parts.epochOf(instance_id);
    // Another node delivers to the instance, and notes its connection.
    if (epoch === null || this.#is_stopped) return;
    this.#changes.set(instance_id, { instance_id, connection, epoch });
    this.#timer ??= this.#parts.clock.after(LINGER_MS, () => void this.#write());
  }

  /** Writes nothing more: this node releases its partitions, and the nodes that take them note which machines pull. */
  stop(): void {
    this.#is_stopped = true;
    this.#timer?.cancel();
  }

  async #write(): Promise<void> {
    const { clock, store, onNoted, onError } = this.#parts;
    const changes = [...this.#changes.values()].slice(0, BATCH_MAX);
    for (const { instance_id } of changes) this.#changes.delete(instance_id);
    let pause_ms = LINGER_MS;
    try {
      await store.instances.noteConnections(changes);
      for (const { instance_id, connection } of changes) onNoted(instance_id, connection);
    } catch (error) {
      if (this.#is_stopped) return;
      onError(error);
      pause_ms = RETRY_MS;
      // Keeps a note that was made meanwhile, because it is newer.
      for (const change of changes) {
        if (!this.#changes.has(change.instance_id)) this.#changes.set(change.instance_id, change);
      }
    }
    this.#timer = null;
    if (this.#changes.size > 0 && !this.#is_stopped) {
      this.#timer = clock.after(pause_ms, () => void this.#write());
    }
  }
}
