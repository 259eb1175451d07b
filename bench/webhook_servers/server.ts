/** A service that takes messages and pushes them to webhooks, as the scenarios in beside.ts see it. */
import type { Fleet } from '../load/fleet.ts';
import type { Request } from '../load/request.ts';

export interface RunningServer {
  url: string;
  /** The request with which it takes a message; absent for Convoke. */
  request?: Request;
  /** The measured processor time is that of these processes and their descendants: the service and its databases. */
  pids(): number[];
  /**
   * Kills the service with SIGKILL, and starts it again at the same address. Its databases continue to run. Resolves
   * when the service is ready.
   */
  killAndRestart(): Promise<void>;
  stop(): Promise<void>;
}

export interface WebhookServer {
  name: string;
  /** A sentence that names the program that this machine does not have; null when it has all. */
  missing(): string | null;
  /** Starts the server with new databases. Each member of the fleet receives the messages of its meeting. */
  start(fleet: Fleet): Promise<RunningServer>;
}
