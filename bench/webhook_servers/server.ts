/** A service that takes messages and pushes them to webhooks, as the scenarios in beside.ts see it. */
import type { Fleet } from '../load/fleet.ts';
import type { Request } from '../load/request.ts';

export interface RunningServer {
  url: string;
  /** How it takes a message; as Convoke does when absent. */
  request?: Request;
  /** The processes whose processor time counts, with their descendants: the service and its databases. */
  pids(): number[];
  /** Kills the service with SIGKILL, and not its databases. Resolves when it is ready again at the same address. */
  killAndRestart(): Promise<void>;
  stop(): Promise<void>;
}

export interface WebhookServer {
  name: string;
  /** What it needs and this machine does not have, in a sentence; null when it can be measured. */
  missing(): string | null;
  /** Starts it with new databases. Each member of the fleet is a receiver of its meeting's messages. */
  start(fleet: Fleet): Promise<RunningServer>;
}
