/** The service responds on every address on which it listens. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { convoke, serve, start, stop, temporaryDirectory } from '../support/command_line.ts';
import { inTime } from '../support/wait.ts';

/** Makes a host name resolve to both addresses, whatever the hosts file of this machine says. */
const BOTH_ADDRESSES = `data:text/javascript,${encodeURIComponent(`
  import dns from 'node:dns';
  const { lookup } = dns;
  const both = [{ address: '127.0.0.1', family: 4 }, { address: '::1', family: 6 }];
  dns.lookup = (name, options, done) =>
    name === 'localhost' && options.all ? process.nextTick(done, null, both) : lookup(name, options, done);
`)}`;

/** The status of a request; null when no server listens at the address. */
async function statusAt(host: string, port: string): Promise<number | null> {
  try {
    return (await fetch(`http://${host}:${port}/healthz`)).status;
  } catch {
    return null;
  }
}

test('on localhost, each of its addresses either serves or is not there', async (t) => {
  const env = { NODE_OPTIONS: `--import=${BOTH_ADDRESSES}` };
  const service = await serve(temporaryDirectory(t), { flags: ['--host', 'localhost'], env });
  t.after(() => stop(service));
  const { port } = new URL(service.url);
  assert.equal(await statusAt('127.0.0.1', port), 200);
  assert.ok([200, null].includes(await statusAt('[::1]', port)));
});

test('a start that fails after its port is open ends the process', async (t) => {
  const data = temporaryDirectory(t);
  await convoke(['keys', 'create', '--scope', 'admin', '--data', data]);
  const db = new DatabaseSync(join(data, 'convoke.db'));
  db.exec(`CREATE TRIGGER no_start BEFORE INSERT ON audit_log WHEN NEW.action = 'service.start' BEGIN
    SELECT RAISE(ABORT, 'the disk is full just now'); END`);
  db.close();
  const started = start(['serve', '--port', '0', '--data', data]);
  t.after(() => started.kill('SIGKILL'));
  const [code] = (await inTime('the end', once(started, 'exit'))) as [number];
  assert.equal(code, 1);
});
