/** The half of a store that makes the calls. The other half, in a thread of its own, is the engine. */
import { once } from 'node:events';
import type { MessagePort, Worker } from 'node:worker_threads';
import {
  type Answer,
  type Call,
  errorOf,
  type StoreName,
  packCall,
  type Reply,
  unpackReply,
} from './thread_protocol.ts';
import type { StartedThread } from './thread_start.ts';
import { stalled, StallWatch, type StallSigns, type Waiting } from './stall.ts';
import type { OwnWork } from './own_work.ts';
import { type DamagedValue, onDamagedValue } from '../rows/stored_values.ts';
import type { Audited } from '../contract/audit.ts';
import type { Change, ClusterStore } from '../contract/cluster.ts';
import type { FileStore } from '../contract/file.ts';
import type { Store } from '../store.ts';
import { StoreError } from '../store_error.ts';

/**
 * Opens the store of a thread. Calls of the same turn of the event loop travel together.
 *
 * @param thread a thread whose store is not open yet
 * @param data plain data for the thread
 * @param observer gets the reports of the store: see `StoreObserver`
 * @param options.transfer the ports in the data, which move to the thread
 * @param options.has_cluster whether other nodes may be on the same database
 * @param options.changeOf makes a Change from what the thread posts
 * @param options.stall_signs the calls whose waiting shows a stall
 * @returns the store, which can be called at once, and a promise that resolves when it is open
 */
export function openThread(
  thread: StartedThread,
  data: object,
  observer: StoreObserver,
  {
    transfer = [],
    has_cluster = false,
    changeOf = (raw) => raw,
    stall_signs = 'all',
  }: {
    transfer?: MessagePort[];
    has_cluster?: boolean;
    changeOf?: (raw: never) => Change;
    stall_signs?: StallSigns;
  } = {},
): { store: Store; opened: Promise<void> } {
  const calls = new Calls(thread.worker, observer, changeOf, stall_signs);
  thread.open(data, transfer);
  const store: Store = {
    stall: calls.stall,
    cluster: has_cluster ? calls.of('cluster') : null,
    ...(has_cluster ? {} : { file: calls.of('file') }),
    onChange: (listener) => (calls.onChange = listener),
    instances: calls.of('instances'),
    meetings: calls.of('meetings'),
    messages: calls.of('messages'),
    deliveries: calls.of('deliveries'),
    encryption: calls.of('encryption'),
    api_keys: calls.of('api_keys'),
    invites: calls.of('invites'),
    audit: calls.of('audit'),
    sessions: calls.of('sessions'),
    audited: (audited) => ({
      instances: calls.of('instances', audited),
      meetings: calls.of('meetings', audited),
      deliveries: calls.of('deliveries', audited),
      encryption: calls.of('encryption', audited),
      api_keys: calls.of('api_keys', audited),
      invites: calls.of('invites', audited),
      sessions: calls.of('sessions', audited),
    }),
    ping: () => calls.ping(),
    close: () => calls.close(),
  };
  return { store, opened: calls.opened };
}

/**
 * One transaction: how many messages, settlements and other requests it has, and how long it took, including the wait
 * for the disk.
 */
export interface Commit {
  items: number;
  duration_ms: number;
}

export interface StoreObserver {
  committed?(commit: Commit): void;
  /** A row holds a value that this service does not write. Called once for each place. */
  damaged?(damaged: DamagedValue): void;
  /** A change by another node could not be read, so this node reads everything again. */
  changeUnreadable?(error: unknown): void;
  /** Work that no call waits for failed; it is tried again. Called at most once a minute for each kind of work. */
  ownWorkFailed?(work: OwnWork, error: Error | null): void;
  /** The thread of the store ended by itself after the store was open. No call can succeed any more. */
  lost?(error: Error): void;
}

type Nouns = Store & { cluster: ClusterStore; file: FileStore };

/** The calls in flight between this thread and the thread of the store. */
class Calls {
  readonly #worker: Worker;
  /** The index is the id of the call. Ids are used again: src/delivery/intrusive_list.ts says why this is not a Map. */
  readonly #waiting: (Waiting | null)[] = [];
  readonly #free_ids: number[] = [];
  #outbox: Call[] = [];
  #failed: Error | null = null;
  #is_open = false;
  #is_closing = false;
  #pinging: Promise<void> | null = null;
  readonly stall: StallWatch;
  onChange: (change: Change) => void = () => {};
  readonly opened: Promise<void>;

  constructor(worker: Worker, observer: StoreObserver, changeOf: (raw: never) => Change, stall_signs: StallSigns) {
    this.#worker = worker;
    this.stall = new StallWatch(this.#waiting, stall_signs);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.opened = promise;
    const fail = (error: Error): void => {
      const is_lost = this.#is_open && !this.#is_closing && this.#failed === null;
      this.#fail(error);
      reject(error);
      if (is_lost) observer.lost?.(error);
    };
    onDamagedValue((damaged) => observer.damaged?.(damaged));
    worker.on(
      'message',
      (
        message:
          | 'open'
          | Omit<Reply, 'id'>
          | Answer
          | { raw: never }
          | { damaged: DamagedValue }
          | { work: OwnWork; failure: Omit<Reply, 'id'> },
      ) => {
        if (message === 'open') {
          this.#is_open = true;
          resolve();
        } else if ('raw' in message) {
          // A change may arrive before the store is open.
          this.#onRawChange(() => changeOf(message.raw), observer);
        } else if ('damaged' in message) {
          observer.damaged?.(message.damaged);
        } else if ('work' in message) {
          observer.ownWorkFailed?.(message.work, errorOf(message.failure));
        } else if (!('replies' in message)) {
          // The last message of a thread that cannot open the store, or cannot continue.
          fail(errorOf(message) ?? new Error('the store did not open'));
        } else {
          const { replies, ...commit } = message;
          observer.committed?.(commit);
          this.#settle(replies);
          this.stall.onReplies();
        }
      },
    );
    worker.on('error', (error) =>
      fail(new StoreError('STORE_THREAD', `the thread of the store died: ${error.message}`)),
    );
    worker.on('exit', () =>
      fail(
        this.#is_closing
          ? new StoreError('STORE_CLOSED', 'the store is closed')
          : new StoreError('STORE_THREAD', 'the thread of the store ended'),
      ),
    );
  }

  /** A message or a row of another node may be unreadable. Then this node reads everything again, and continues. */
  #onRawChange(changeOf: () => Change, observer: StoreObserver): void {
    try {
      this.onChange(changeOf());
    } catch (error) {
      observer.changeUnreadable?.(error);
      this.onChange({ kind: 'resync' });
    }
  }

  /** A part of the store whose methods call the other thread. */
  of<Name extends StoreName & keyof Nouns>(store: Name, audited?: Audited): Nouns[Name] {
    return new Proxy({} as Nouns[Name], {
      get:
        (_, method) =>
        (...args: unknown[]) =>
          this.call(store, String(method), args, audited),
    });
  }

  /** Calls that are made while a ping is in flight share that ping. */
  ping(): Promise<void> {
    if (this.stall.is_stalled) return Promise.reject(stalled());
    this.#pinging ??= this.call('storage', 'touch', [])
      .then(() => {})
      .finally(() => (this.#pinging = null));
    return this.#pinging;
  }

  call(store: StoreName, method: string, args: unknown[], audited?: Audited): Promise<unknown> {
    if (this.#failed !== null) return Promise.reject(this.#failed);
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const id = this.#free_ids.pop() ?? this.#waiting.length;
    this.#waiting[id] = { method, resolve, reject, ...this.stall.begin(`${store}.${method}`) };
    this.#outbox.push(
      packCall(audited === undefined ? { id, store, method, args } : { id, store: store, method, args, audited }),
    );
    if (this.#outbox.length === 1) queueMicrotask(() => this.#post());
    return promise;
  }

  #post(): void {
    const calls = this.#outbox;
    this.#outbox = [];
    this.#worker.postMessage(calls);
  }

  #settle(replies: Reply[]): void {
    for (const reply of replies) {
      const waiting = this.#waiting[reply.id] ?? null;
      if (waiting === null) continue;
      this.#waiting[reply.id] = null;
      this.#free_ids.push(reply.id);
      const error = errorOf(reply);
      if (error === null) waiting.resolve(unpackReply(waiting.method, reply).value);
      else waiting.reject(error);
    }
  }

  #fail(error: Error): void {
    this.#failed ??= error;
    this.stall.stop();
    for (const waiting of this.#waiting) waiting?.reject(this.#failed);
    this.#waiting.length = this.#free_ids.length = 0;
  }

  async close(): Promise<void> {
    if (this.#failed !== null) return;
    this.#is_closing = true;
    if (this.#outbox.length > 0) this.#post();
    this.#worker.postMessage('close');
    await once(this.#worker, 'exit');
  }
}
