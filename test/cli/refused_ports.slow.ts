/** A service whose port fetch refuses: the commands that start and examine a service say so. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { refusedPort } from '@convoke/sdk';
import { convoke, start, temporaryDirectory } from '../support/command_line.ts';
import { isFree } from '../support/free_port.ts';

/** Above the largest port that the standard names. */
const PORT_MAX = 10_100;

/** A port that fetch refuses and that nothing on this machine uses. */
async function freeRefusedPort(): Promise<number> {
  for (let port = PORT_MAX; port > 1_024; port--) {
    if (refusedPort(`http://127.0.0.1:${port}/`) !== null && (await isFree(port))) return port;
  }
  throw new Error('every port that fetch refuses is in use');
}

test('serve and doctor warn of a refused port, which only other clients and a proxy reach', async (t) => {
  const port = await freeRefusedPort();
  const flags = ['--port', String(port), '--data', temporaryDirectory(t)];
  const child = start(['serve', ...flags, '--log-format', 'json']);
  let log = '';
  child.stderr!.on('data', (chunk: Buffer) => (log += chunk.toString()));
  const ended = once(child, 'close');
  await Promise.race([once(child.stdout!, 'data'), ended]);
  child.kill('SIGTERM');
  await ended;
  const why = `port ${port} belongs to another protocol, [^\\n]*`;
  assert.match(log, new RegExp(`"level":40[^\\n]*"${why}; choose another with --port"`));
  const { stdout } = await convoke(['doctor', ...flags]);
  assert.match(stdout, new RegExp(`\\nwarn +port +${why}: choose another with --port\\n`));
});
