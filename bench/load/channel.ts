/** Sends commands from the process that measures to its helper processes, over the channel of `fork`. */
import { fork, type ChildProcess, type ForkOptions } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

type Handlers = Record<string, (args: never) => unknown>;

interface Command {
  id: number;
  name: string;
  args: unknown;
}

interface Reply {
  id: number;
  value?: unknown;
  error?: string;
}

/** A helper process of the benchmark. `call` runs one of its commands. */
export class Tool<Commands extends Handlers> {
  readonly process: ChildProcess;
  readonly #waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  #last_id = 0;

  /** @param file the module to run, relative to bench/ */
  constructor(file: string, args: string[] = [], options: ForkOptions = {}) {
    this.process = fork(fileURLToPath(new URL(file, new URL('../', import.meta.url))), args, options);
    this.process.on('message', (reply: Reply) => {
      const waiting = this.#waiting.get(reply.id);
      this.#waiting.delete(reply.id);
      if (reply.error === undefined) waiting?.resolve(reply.value);
      else waiting?.reject(new Error(`${file}: ${reply.error}`));
    });
    this.process.on('exit', (code, signal) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`${file} ended (${String(code ?? signal)})`));
      this.#waiting.clear();
    });
  }

  call<Name extends keyof Commands & string>(
    name: Name,
    ...[args]: Parameters<Commands[Name]>
  ): Promise<Awaited<ReturnType<Commands[Name]>>> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const id = ++this.#last_id;
    this.#waiting.set(id, { resolve, reject });
    this.process.send({ id, name, args } satisfies Command, (error) => error && reject(error));
    return promise as Promise<Awaited<ReturnType<Commands[Name]>>>;
  }

  async stop(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exit = once(this.process, 'exit');
    if (this.process.connected) this.process.disconnect();
    await exit;
  }
}

/** The side of the helper process: runs commands until the channel closes, then ends the process. */
export function serveCommands<Commands extends Handlers>(commands: Commands): Commands {
  answerCommands(commands);
  process.once('disconnect', () => process.exit());
  // Ctrl-C reaches all processes of the group. This process ignores it, and ends when its parent closes the channel.
  process.on('SIGINT', () => {});
  return commands;
}

/** Runs commands, and leaves the process running when the channel closes. */
export function answerCommands<Commands extends Handlers>(commands: Commands): Commands {
  process.on('message', ({ id, name, args }: Command) => {
    const run = commands[name] as ((args: unknown) => unknown) | undefined;
    Promise.resolve()
      .then(() => {
        if (run === undefined) throw new Error(`there is no command ${name}`);
        return run(args);
      })
      .then((value) => process.send?.({ id, value }))
      .catch((error: unknown) => process.send?.({ id, error: error instanceof Error ? error.stack : String(error) }));
  });
  return commands;
}
