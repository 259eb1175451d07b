import type { ConvokeClient, Session } from '@convoke/sdk';

/** Who uses the tools: a client of the API with a key of its own, and what its key permits. */
export class Caller {
  readonly client: ConvokeClient;
  /** Aborted when nobody waits for the answer any more. */
  readonly signal: AbortSignal;
  /** Calls back once: when the answer was written, or when nobody was there to read it. */
  readonly onAnswered: (callback: (was_written: boolean) => void) => void;
  /** Told of messages that were given to a model and whose settlement failed: they come again. */
  readonly onUnsettled: (error: unknown) => void;
  #session: Promise<Session> | null = null;

  constructor(parts: Pick<Caller, 'client' | 'signal' | 'onAnswered' | 'onUnsettled'>) {
    this.client = parts.client;
    this.signal = parts.signal;
    this.onAnswered = parts.onAnswered;
    this.onUnsettled = parts.onUnsettled;
  }

  /** What the key permits. The service decides it again for every request; this only chooses what is offered. */
  session(): Promise<Session> {
    return (this.#session ??= this.client.session({ signal: this.signal }));
  }

  /**
   * The instance that an agent takes part as: the one that is named, or the one that the key is limited to, or one of
   * the agent's own name.
   */
  async instanceOf({ agent_id, instance_id }: { agent_id: string; instance_id?: string | undefined }): Promise<string> {
    return instance_id ?? (await this.session()).instance_id ?? agent_id;
  }
}
