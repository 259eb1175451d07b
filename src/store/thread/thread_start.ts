/** How the thread of an engine starts: it loads its code, and then gets what it needs to open the store. */
import { once } from 'node:events';
import { MessageChannel, type MessagePort, Worker, workerData } from 'node:worker_threads';

/** A thread that loads its code, and then waits for the data that opens its store. */
export interface StartedThread {
  worker: Worker;
  /**
   * Lets the thread open its store.
   *
   * @param data plain data, for `dataOfThread`
   * @param transfer the ports in the data, which move to the thread
   */
  open(data: object, transfer: MessagePort[]): void;
}

/**
 * The size of a thread's young generation in MiB. V8 divides it by three, so objects fill 16 MiB before V8 collects
 * them. The default of Node 24 is 192 MiB, so objects fill 64 MiB. They do that in the threads of stores too, although
 * hardly any object there lives longer than a call. With this limit such a thread takes up to 100 MiB less, and no more
 * processor time (bench/NOTES.md).
 */
const YOUNG_MIB = 48;

/**
 * Starts a thread. Until `open` is called, the thread does not keep the process alive.
 *
 * @param module the entry of the thread
 */
export function startThread(module: URL): StartedThread {
  const { port1: port, port2: data_port } = new MessageChannel();
  // The thread must not inherit options of this process such as --input-type or --eval. The one option that it gets
  // hides Node 22's warning that its SQLite is experimental.
  const execArgv = ['--disable-warning=ExperimentalWarning'];
  const worker = new Worker(module, {
    workerData: data_port,
    transferList: [data_port],
    execArgv,
    resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MIB },
  });
  worker.unref();
  port.unref();
  return {
    worker,
    open(data, transfer) {
      worker.ref();
      port.postMessage(data, transfer);
      port.close();
    },
  };
}

/** In the thread: resolves to what the caller gave to `open`. */
export async function dataOfThread<Data>(): Promise<Data> {
  const port = workerData as MessagePort;
  const [data] = (await once(port, 'message')) as [Data];
  return data;
}
