import type { ConvokeClient, Session } from '@convoke/sdk';
import { traceHeaders, traceOf } from '../domain/trace_context.ts';

/** The user of the tools: a client of the API with a key of its own, and the rights of that key. */
export class Caller {
  readonly client: ConvokeClient;
  /** Aborted when nobody waits for the response any more. */
  readonly signal: AbortSignal;
  /** Calls back once: when the response was written, or when nobody could read it any more. */
  readonly onAnswered: (callback: (was_written: boolean) => void) => void;
  /** Resolves when the client takes more of a stream, so that unread events do not fill the memory. */
  readonly hasRoom: () => Promise<void>;
  /** Called when messages were given to a model and could not be settled. Convoke pushes these messages again. */
  readonly onUnsettled: (error: unknown) => void;
  /** The trace that the client names in `_meta` of a request; empty when it names none. */
  readonly trace: { traceparent?: string; tracestate?: string };
  #session: Promise<Session> | null = null;

  constructor(
    parts: Pick<Caller, 'client' | 'signal' | 'onAnswered' | 'hasRoom' | 'onUnsettled'> &
      Partial<Pick<Caller, 'trace'>>,
  ) {
    this.client = parts.client;
    this.signal = parts.signal;
    this.onAnswered = parts.onAnswered;
    this.hasRoom = parts.hasRoom;
    this.onUnsettled = parts.onUnsettled;
    this.trace = parts.trace ?? {};
  }

  /**
   * The same caller for a request with this `_meta`: its trace has priority over the headers of the HTTP request. A trace
   * that cannot be read is ignored, because tracing must never stop a message.
   *
   * @param meta an object with `traceparent` and `tracestate`, as in W3C Trace Context
   */
  within({ traceparent, tracestate }: Record<string, unknown> = {}): Caller {
    const named = traceOf(textOf(traceparent), textOf(tracestate));
    if (named === null) return this;
    // An empty tracestate replaces the tracestate in the headers, which belongs to another traceparent.
    const trace = { tracestate: '', ...traceHeaders(named) };
    const { client, signal, onAnswered, hasRoom, onUnsettled } = this;
    return new Caller({ client, signal, onAnswered, hasRoom, onUnsettled, trace });
  }

  /** The rights of the key. They only choose which tools are offered: the service checks every request again. */
  session(): Promise<Session> {
    return (this.#session ??= this.client.session({ signal: this.signal }));
  }

  /**
   * The instance of an agent, as the first of these that there is:
   *
   * 1. the named instance,
   * 2. the instance to which the key is limited,
   * 3. the instance whose id is the id of the agent.
   */
  async instanceOf({ agent_id, instance_id }: { agent_id: string; instance_id?: string | undefined }): Promise<string> {
    return instance_id ?? (await this.session()).instance_id ?? agent_id;
  }
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}
