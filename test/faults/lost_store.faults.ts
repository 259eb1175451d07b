/** The thread of the store ends by itself, for example because it has no memory left. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NodeProcess } from './node_process.ts';
import { temporaryDirectory } from './run.ts';

/** Lets SIGUSR2 end each thread that the process starts. */
const ENDS_THREADS = `data:text/javascript,import { Worker } from 'node:worker_threads';
  const { unref } = Worker.prototype;
  Worker.prototype.unref = function () {
    process.on('SIGUSR2', () => this.terminate());
    return unref.call(this);
  };`;

test('a service whose store is lost ends with a line in its log, so that its service manager starts it again', async (t) => {
  const data = await temporaryDirectory(t);
  const serve = ['src/cli/main.ts', 'serve', '--port', '0', '--data', data];
  const node = NodeProcess.run(t, ['--import', ENDS_THREADS, ...serve]);
  await node.ready;
  const { code } = await node.end('SIGUSR2');
  assert.equal(code, 1, node.log);
  assert.match(node.log, /a defect of Convoke: the process ends, and nothing accepted is lost/);
  assert.match(node.log, /STORE_THREAD/);
  const next = NodeProcess.serve(t, data);
  await next.ready;
  assert.equal((await next.end('SIGTERM')).code, 0, next.log);
});
