import type { ConvokeClient, Session } from '@convoke/sdk';

/** Who uses the tools: a client of the API with a key of its own, and what its key permits. */
export class Caller {
  readonly client: ConvokeClient;
  /** Aborted when nobody waits for the response any more. */
  readonly signal: AbortSignal;
  /** Calls back once: when the response was written, or when nobody could read it any more. */
  readonly onAnswered: (callback: (was_written: boolean) => void) => void;
  /** Called when messages were given to a model and could not be settled. They are pushed again. */
  readonly onUnsettled: (error: unknown) => void;
  #session: Promise<Session> | null = null;

  constructor(parts: Pick<Caller, 'client' | 'signal' | 'onAnswered' | 'onUnsettled'>) {
    this.client = parts.client;
    this.signal = parts.signal;
    this.onAnswered = parts.onAnswered;
    this.onUnsettled = parts.onUnsettled;
  }

  /** What the key permits. It only decides which tools are offered; the service checks every request again. */
  session(): Promise<Session> {
    return (this.#session ??= this.client.session({ signal: this.signal }));
  }

  /**
   * The instance of an agent: the named one, otherwise the one that the key is limited to, otherwise one with the name
   * of the agent.
   */
  async instanceOf({ agent_id, instance_id }: { agent_id: string; instance_id?: string | undefined }): Promise<string> {
    return instance_id ?? (await this.session()).instance_id ?? agent_id;
  }
}
