/** MCP on standard input and output, for clients that start a program on their own machine. */
import type { ConvokeClient } from '@convoke/sdk';
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import type { Readable, Writable } from 'node:stream';
import { Caller } from './caller.ts';
import { NextMessages } from './events/next_messages.ts';
import { type AskedBy, makeServer } from './server.ts';

type Callback = (was_written: boolean) => void;
type Message = Parameters<StdioServerTransport['send']>[0];

/** Reports when the response to a request was written. */
export class AnsweringTransport extends StdioServerTransport {
  readonly #output: Writable;
  readonly #callbacks = new Map<string | number, Callback>();

  constructor(input: Readable, output: Writable) {
    super(input, output);
    this.#output = output;
  }

  onAnswered({ id, signal }: AskedBy, callback: Callback): void {
    // A request that was cancelled gets no response.
    const onAbort = (): void => this.#take(id)?.(false);
    signal.addEventListener('abort', onAbort);
    this.#callbacks.set(id, (was_written) => {
      // Otherwise the listener would keep the signal in memory as long as the input is open.
      signal.removeEventListener('abort', onAbort);
      callback(was_written);
    });
  }

  override async send(message: Message): Promise<void> {
    const callback = 'id' in message && !('method' in message) ? this.#take(message.id) : undefined;
    try {
      await super.send(message);
      await this.#written();
    } catch (error) {
      callback?.(false);
      throw error;
    }
    callback?.(true);
  }

  /** Rejects when the output did not take what was written to it: its reader may be gone. */
  #written(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#output.write('', (error) => (error ? reject(error) : resolve()));
    });
  }

  #take(request_id: string | number | undefined): Callback | undefined {
    if (request_id === undefined) return undefined;
    const callback = this.#callbacks.get(request_id);
    this.#callbacks.delete(request_id);
    return callback;
  }
}

interface Stdio {
  input: Readable;
  output: Writable;
  client: ConvokeClient;
  /** Called when a message was given to the model and its result could not be reported to the service. */
  onUnsettled: (error: unknown) => void;
}

/** Serves until the input ends, or nobody reads the output any more. */
export async function serveOnStdio({ input, output, client, onUnsettled }: Stdio): Promise<void> {
  const transport = new AnsweringTransport(input, output);
  const ended = new AbortController();
  const { promise, resolve } = Promise.withResolvers<void>();
  const end = (): void => {
    ended.abort();
    resolve();
  };
  input.once('end', end).once('close', end);
  output.once('error', end);
  const messages = new NextMessages();
  serveStdio(
    () =>
      makeServer((asked_by) => {
        const signal = AbortSignal.any([ended.signal, asked_by.signal]);
        const onAnswered = (callback: Callback): void => transport.onAnswered({ ...asked_by, signal }, callback);
        // The transport itself waits until the client reads.
        const hasRoom = async (): Promise<void> => {};
        return new Caller({ client, signal, onAnswered, hasRoom, onUnsettled });
      }, messages),
    { transport },
  );
  return promise;
}
