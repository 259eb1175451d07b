import type { TransportName } from '../../domain/instance.ts';
import type { Push, PushResult, Transport, Way } from './transport.ts';

/** The ways to deliver. Each instance names its own. */
export class Transports implements Transport {
  readonly #by_name: Readonly<Record<TransportName, Transport>>;
  readonly #all: readonly Transport[];

  constructor(by_name: Readonly<Record<TransportName, Transport>>) {
    this.#by_name = by_name;
    this.#all = Object.values(by_name);
  }

  canPush(instance_id: string, way: Way): boolean {
    return this.#by_name[way.transport].canPush(instance_id, way);
  }

  push(push: Push, way: Way): Promise<PushResult | null> {
    return this.#by_name[way.transport].push(push, way);
  }

  readEnded(instance_id: string | null): void {
    for (const transport of this.#all) transport.readEnded?.(instance_id);
  }

  registrationChanged(instance_id: string | null): void {
    for (const transport of this.#all) transport.registrationChanged?.(instance_id);
  }

  forget(instance_id: string): void {
    for (const transport of this.#all) transport.forget(instance_id);
  }

  handOver(isTaken: (instance_id: string) => boolean): void {
    for (const transport of this.#all) transport.handOver(isTaken);
  }

  async close(): Promise<void> {
    await Promise.all(this.#all.map((transport) => transport.close()));
  }
}
