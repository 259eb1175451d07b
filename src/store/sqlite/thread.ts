/**
 * The thread that owns the file: it waits for the disk, so that the thread that serves and delivers need not. Calls
 * that arrive while a commit waits for the disk go into the next commit.
 */
import assert from 'node:assert/strict';
import { type MessagePort, parentPort, receiveMessageOnPort } from 'node:worker_threads';
import type { KeySource } from '../secrets/data_keys.ts';
import type { Quotas } from '../contract/quotas.ts';
import { type Answer, type Call, failureOf, itemsIn, packReply, unpackCall } from '../thread/thread_protocol.ts';
import { releaseStartMemoryLater } from '../thread/start_memory.ts';
import { dataOfThread } from '../thread/thread_start.ts';
import { onDamagedValue } from '../rows/stored_values.ts';
import { wallNow } from '../../wall_clock.ts';
import { CopyMaker } from './file/backups.ts';
import { storeErrorOf } from './errors.ts';
import { GroupCommit } from './group_commit.ts';

/** A transaction with this many calls takes no more calls, so that its first call does not wait too long. */
const CALLS_PER_COMMIT_MAX = 500;

assert(parentPort !== null, 'this module is the entry of a worker thread');
const port = parentPort;
onDamagedValue((damaged) => port.postMessage({ damaged }));

try {
  const { file, key_source, quotas, backup_port } = await dataOfThread<{
    file: string;
    key_source: KeySource;
    quotas: Quotas;
    backup_port: MessagePort;
  }>();
  const group_commit = new GroupCommit(file, key_source, wallNow, quotas);
  const copy_maker = new CopyMaker(backup_port, file, group_commit);
  const close = async (): Promise<void> => {
    await copy_maker.close();
    group_commit.close();
    port.close();
  };
  const run = (packed_calls: Call[]): Answer => {
    const calls = packed_calls.map(unpackCall);
    const started_ms = performance.now();
    const replies = group_commit.run(calls);
    const duration_ms = performance.now() - started_ms;
    const items = calls.reduce((sum, call) => sum + itemsIn(call), 0);
    return { replies: replies.map((reply, i) => packReply(calls[i] as Call, reply)), items, duration_ms };
  };
  port.on('message', (message: Call[] | 'close') => {
    let calls: Call[] = [];
    for (let next: Call[] | 'close' | undefined = message; next !== undefined; next = receive()) {
      if (next === 'close') {
        if (calls.length > 0) port.postMessage(run(calls));
        void close();
        return;
      }
      calls = calls.length === 0 ? next : [...calls, ...next];
      if (calls.length >= CALLS_PER_COMMIT_MAX) break;
    }
    port.postMessage(run(calls));
  });
  port.postMessage('open');
} catch (error) {
  port.postMessage(failureOf(storeErrorOf(error)));
  port.close();
}
releaseStartMemoryLater();

function receive(): Call[] | 'close' | undefined {
  return receiveMessageOnPort(port)?.message;
}
