/** A command whose response has a secret says what may have happened, and what to do, when no response comes. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import type { Command } from 'commander';
import { instancesCommand } from '../../src/cli/program/commands/instances.ts';
import { keysCommand } from '../../src/cli/program/commands/keys.ts';

const COMMANDS: [command: () => Command, args: string[], said: RegExp][] = [
  [keysCommand, ['create', '--scope', 'send'], /nobody saw its token: `.*convoke keys` lists it, and `.*` ends it$/],
  [
    keysCommand,
    ['rotate', '4f7k2m9q0a1b'],
    /nobody saw it: rotate again, because each earlier token works until its own end$/,
  ],
  [
    keysCommand,
    ['rotate', '4f7k2m9q0a1b', '--overlap', '0'],
    /the old ones have ended: rotate again with another admin key/,
  ],
  [
    instancesCommand,
    ['rotate-secret', 'box'],
    /nobody saw it: rotate again, because each earlier secret signs until its own end$/,
  ],
  [instancesCommand, ['rotate-secret', 'box', '--overlap', '0'], /nobody saw it: rotate again$/],
  [
    instancesCommand,
    ['register', 'box', '--webhook', 'http://127.0.0.1:9000/'],
    /register it again, and if no secret is printed then, `.*convoke instances rotate-secret box`$/,
  ],
];

async function serviceThatIsLost(t: TestContext): Promise<string> {
  const server = createServer((request) => request.socket.destroy());
  t.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

for (const [command, args, said] of COMMANDS) {
  test(args.join(' '), async (t) => {
    const run = command().parseAsync([...args, '--url', await serviceThatIsLost(t)], { from: 'user' });
    await assert.rejects(run, { name: 'CommandFailure', exit_code: 3, message: said });
  });
}
