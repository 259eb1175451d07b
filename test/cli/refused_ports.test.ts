/** A URL with a port that fetch refuses for good: no command tries again and again. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refusedPort } from '@convoke/sdk';
import { EXIT } from '../../src/cli/program/exit.ts';
import { clientFor } from '../../src/cli/program/api.ts';

/** Above the largest port that the standard names. */
const PORT_MAX = 10_100;

test('the refused ports are those that fetch of this Node refuses', async () => {
  const connecting = new Error('this port is not refused');
  const dispatcher = {
    dispatch() {
      throw connecting;
    },
  };
  const differ: number[] = [];
  for (let port = 1; port <= PORT_MAX; port++) {
    const url = `http://127.0.0.1:${port}/`;
    const failure = (await fetch(url, { dispatcher } as unknown as RequestInit).catch(
      (error: unknown) => error,
    )) as Error;
    const is_refused = failure.cause !== connecting;
    if ((refusedPort(url) === port) !== is_refused) differ.push(port);
  }
  assert.deepEqual(differ, []);
});

test('a command names the port and ends with 2', () => {
  assert.throws(() => clientFor({ url: 'https://convoke.example:6000/meetings' }), {
    name: 'CommandFailure',
    exit_code: EXIT.usage,
    message: /^https:\/\/convoke\.example:6000 cannot be asked: port 6000 .* let Convoke listen on another port$/,
  });
  for (const url of ['http://127.0.0.1:8080', 'https://convoke.example', 'http://convoke.example:80'])
    assert.ok(clientFor({ url }), url);
});
