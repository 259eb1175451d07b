/**
 * The thread that speaks with PostgreSQL: rows are encoded and decoded here, and not in the thread that serves and
 * delivers.
 */
import assert from 'node:assert/strict';
import { parentPort } from 'node:worker_threads';
import { type Call, failureOf } from '../thread/thread_protocol.ts';
import type { KeySource } from '../secrets/data_keys.ts';
import type { Quotas } from '../contract/quotas.ts';
import { releaseStartMemoryLater } from '../thread/start_memory.ts';
import { dataOfThread } from '../thread/thread_start.ts';
import { onDamagedValue } from '../rows/stored_values.ts';
import { wallNow } from '../../wall_clock.ts';
import { Executor } from './executor.ts';

assert(parentPort !== null, 'this module is the entry of a worker thread');
const port = parentPort;
onDamagedValue((damaged) => port.postMessage({ damaged }));

try {
  const { url, key_source, quotas } = await dataOfThread<{ url: string; key_source: KeySource; quotas: Quotas }>();
  const executor = await Executor.open(
    url,
    key_source,
    quotas,
    {
      answer: (answer) => port.postMessage(answer),
      change: (raw) => port.postMessage({ raw }),
      failed: (work, error) => port.postMessage({ work, failure: failureOf(error) }),
    },
    wallNow(),
  );
  port.on('message', (message: Call[] | 'close') => {
    if (message !== 'close') return executor.run(message);
    void executor.close().finally(() => port.close());
  });
  port.postMessage('open');
} catch (error) {
  port.postMessage(failureOf(error));
  port.close();
}
releaseStartMemoryLater();
