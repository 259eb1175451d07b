/**
 * No secret leaves the service. The test gives secrets to every field that takes a secret, and looks for them in
 * everything that the service puts out.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { text as readAll } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { DATABASE_FILE, KEY_FILE } from '../../src/domain/data_directory.ts';
import {
  type Canary,
  canaryOf,
  findCanaries,
  keyCanaryOf,
  makeCanary,
  makeSecretCanary,
  secretCanaryOf,
} from '../support/canaries.ts';
import { contentsOf, copyFiles } from '../support/files.ts';
import { type Received, type Receiver, startReceiver } from '../support/receiver.ts';
import { inTime, until } from '../support/wait.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const CLEAN_ENV = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('CONVOKE_')));

type Json = Record<string, unknown>;

/** A running service, and everything that it has put out so far. */
class Watched {
  readonly texts = new Map<string, Buffer>();
  readonly data: string;
  #child: ChildProcess | null = null;
  #url = '';
  #log = '';
  #number = 0;

  constructor(t: TestContext) {
    this.data = mkdtempSync(join(tmpdir(), 'convoke-canaries-'));
    t.after(() => {
      this.#child?.kill('SIGKILL');
      rmSync(this.data, { recursive: true, force: true });
    });
  }

  async start(flags: string[], env: Record<string, string> = {}): Promise<void> {
    const args = ['src/cli/main.ts', 'serve', '--port', '0', '--data', this.data, '--log-level', 'trace', ...flags];
    const child = spawn(process.execPath, args, { cwd: ROOT, env: { ...CLEAN_ENV, ...env }, stdio: 'pipe' });
    this.#child = child;
    this.#log = '';
    let stdout = '';
    const ready = Promise.withResolvers<string>();
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text;
      const line = /^convoke ready (http:\/\/\S+)\n/m.exec(stdout);
      if (line?.[1] !== undefined) ready.resolve(line[1]);
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => (this.#log += text));
    child.once('exit', (code) => ready.reject(new Error(`it ended with ${code}: ${this.#log}`)));
    this.#url = await inTime('the ready line', ready.promise);
  }

  get log(): string {
    return this.#log;
  }

  async stop(): Promise<void> {
    const child = this.#child!;
    const closed = once(child, 'close');
    child.kill('SIGTERM');
    await inTime('the end of the process', closed);
    this.#child = null;
    this.keep('the log', this.#log);
  }

  keep(where: string, text: string | Buffer): void {
    this.texts.set(`${where} (${++this.#number})`, Buffer.from(text));
  }

  /** Keeps the contents of every file of the data directory, except the file with the key. */
  keepFiles(where: string, directory = this.data): void {
    for (const [name, bytes] of contentsOf(directory)) if (name !== KEY_FILE) this.keep(`${where} ${name}`, bytes);
  }

  /** Calls the API, and keeps the response, without a secret that it may show because it was just made. */
  async call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
    const is_raw = typeof body === 'string' || Buffer.isBuffer(body);
    const answer = await fetch(this.#url + path, {
      method,
      headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      ...(body === undefined ? {} : { body: is_raw ? (body as string) : JSON.stringify(body) }),
    });
    const text = await answer.text();
    const shown = /"webhook_secret":"(whsec_[^"]+)"|"link":"[^"]+\/invite\/([\w-]+)"/
      .exec(text)
      ?.slice(1)
      .find((each) => each !== undefined);
    const rest = shown === undefined ? text : text.replace(shown, '');
    // The page of an invite shows a command with the secret of the invite. Its visitor already has the secret.
    if (method === 'GET' && path.startsWith('/invite/')) return { status: answer.status, text, shown };
    this.keep(
      `the answer to ${method} ${path.split('?')[0]?.replace(/^(\/invite\/).*/, '$1')}`,
      `${JSON.stringify([...answer.headers])}\n${rest}`,
    );
    return { status: answer.status, text, shown };
  }

  async cli(args: string[], env: Record<string, string> = {}): Promise<{ code: number | null; stdout: string }> {
    const child = spawn(process.execPath, ['src/cli/main.ts', ...args], {
      cwd: ROOT,
      env: { ...CLEAN_ENV, CONVOKE_URL: this.#url, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const [stdout, stderr] = await Promise.all([readAll(child.stdout), readAll(child.stderr), once(child, 'close')]);
    this.keep(`convoke ${args.slice(0, 2).join(' ')}`, stdout + stderr);
    return { code: child.exitCode, stdout };
  }
}

function registration(instance_id: string, webhook_url: string, more: Json = {}): Json {
  return { instance_id, instance_name: instance_id, agent_ids: ['a'], webhook_url, ...more };
}

/** Makes an error page that repeats the headers of the request. */
const echo = ({ headers }: Received): string => `<pre>${JSON.stringify(headers, null, 2)}</pre>`;

/** Makes registrations and other calls that the service refuses, each with a secret in it. */
async function sendBadRequests(service: Watched, { text }: Canary, url: string): Promise<void> {
  const bad = async (method: string, path: string, body: unknown, headers?: Record<string, string>): Promise<void> => {
    const { status, text: answer } = await service.call(method, path, body, headers);
    assert.ok(status >= 400 && status < 500, `${status} to ${JSON.stringify(body)}: ${answer}`);
  };
  const register = '/api/v1/instances/register/';
  for (const more of [
    { webhook_secret: text },
    { webhook_secret: `whsec_${text}!` },
    { webhook_secret: `whsec_${text.slice(0, 41)}` },
    { webhook_secret: [text] },
    { webhook_secret: { text } },
    { webhook_headers: text },
    { webhook_headers: [text] },
    { webhook_headers: { authorization: `Bearer ${text}\n` } },
    { webhook_headers: { authorization: `Bearer ${text}\u0000` } },
    { webhook_headers: { authorization: `Bearer ${text}✓` } },
    { webhook_headers: { authorization: text.repeat(100) } },
    { webhook_headers: { authorization: [text] } },
    { webhook_headers: { 'not a name': text } },
    { webhook_headers: { 'webhook-signature': text } },
    { webhook_headers: { 'X-Key': text, 'x-key': text } },
    { webhook_secrets: text },
    { encryption_key: text },
    { webhook_url: `http://user:${text}@127.0.0.1:9/` },
    { success_statuses: text },
    { agent_ids: { text } },
  ]) {
    await bad('POST', register, registration('bad', url, more));
    await bad('PATCH', '/api/v1/instances/given/', more);
  }
  const whole = JSON.stringify(
    registration('bad', url, { webhook_secret: text, webhook_headers: { authorization: text } }),
  );
  for (const body of [
    whole.slice(0, -1),
    whole.slice(0, whole.indexOf(text) + 10),
    whole.replace(`"${text}"`, `"${text}`),
    whole.replace(`"${text}"`, text),
    whole.replace(`"${text}"`, `"${text}" oops`),
    whole.replace(`"${text}"`, `"${text}\n"`),
    whole.replace(`"webhook_secret"`, `"webhook_secret":"${text}","webhook_secret"`),
    Buffer.concat([Buffer.from(whole), Buffer.from([0xff])]),
  ]) {
    await bad('POST', register, body);
  }
  await bad('POST', register, whole, { 'content-type': 'text/plain' });
  await bad('POST', register, whole, { 'content-encoding': 'gzip' });
  await bad('POST', register, `${' '.repeat(3 << 20)}${whole}`);
  await bad('POST', '/api/v1/instances/given/rotate-secret/', { overlap_seconds: text });
  await bad('POST', '/api/v1/instances/given/rotate-secret/', { webhook_secret: text });
  await bad('POST', '/api/v1/instances/webhook-test/', { instance_id: 'given', webhook_secret: text });
  await bad('GET', `/api/v1/instances/?webhook_secret=${text}`, undefined);
  await bad('GET', `/api/v1/instances/?limit=${text}`, undefined);
  await bad('POST', '/api/v1/instances/heartbeat/', undefined, { authorization: `Bearer ${text}` });
}

async function attempted(service: Watched, count: number): Promise<void> {
  await until(
    `${count} settled deliveries`,
    async () =>
      (JSON.parse((await service.call('GET', '/api/v1/deliveries/?limit=500')).text) as { data: Json[] }).data,
    (deliveries) => deliveries.length === count && deliveries.every(({ state }) => state !== 'pending'),
  );
}

test('no secret is in a log, an error, a metric, a response, the output of a command, the data file or a copy of it', async (t) => {
  const service = new Watched(t);
  const given = makeSecretCanary('the secret given');
  const given_again = makeSecretCanary('the secret given later');
  const [token, patched, plain_value, refused] = [
    'a bearer token',
    'a patched token',
    'a header',
    'a refused secret',
  ].map(makeCanary) as [Canary, Canary, Canary, Canary];
  const canaries = [given, given_again, token, patched, plain_value, refused];

  const good: Receiver = await startReceiver(t);
  const failing = await startReceiver(t, (request) => ({ status: 500, body: echo(request) }));
  const unkind = await startReceiver(t, (request) => ({
    status: 404,
    headers: { location: request.path },
    body: echo(request).repeat(20),
  }));
  const cutting = await startReceiver(t, 'reset');
  const headers = { authorization: `Bearer ${token.text}`, 'x-key': plain_value.text };

  await service.start(['--log-format', 'json', '--retry-schedule', '10ms,10ms']);
  const post = (path: string, body?: unknown) => service.call('POST', path, body);

  // From here on secrets enter the service, or are made, in every possible way.
  await post(
    '/api/v1/instances/register/',
    registration('given', good.url, { webhook_secret: given.text, webhook_headers: headers }),
  );
  await post('/api/v1/instances/register/', registration('given', good.url, { webhook_secret: given_again.text }));
  const machines = { failing, unkind, cutting };
  for (const [instance_id, { url }] of Object.entries(machines)) {
    const { shown } = await post(
      '/api/v1/instances/register/',
      registration(instance_id, url, { webhook_headers: headers }),
    );
    canaries.push(secretCanaryOf(`the secret made for ${instance_id}`, shown!));
  }
  for (const instance_id of ['given', 'failing']) {
    const { shown } = await post(`/api/v1/instances/${instance_id}/rotate-secret/`, {});
    canaries.push(secretCanaryOf(`the rotated secret of ${instance_id}`, shown!));
  }
  await service.call('PATCH', '/api/v1/instances/failing/', {
    webhook_headers: { ...headers, authorization: `Bearer ${patched.text}` },
  });

  const invite = { meeting_ids: ['m'], agent_ids: ['a'] };
  for (const name of ['the link that is redeemed', 'the link that is not']) {
    const { shown } = await post('/api/v1/invites/', invite);
    canaries.push(canaryOf(name, shown!));
    assert.equal((await service.call('GET', `/invite/${shown}`)).status, 200);
    for (const [method, status] of [
      ['POST', 405],
      ['PUT', 405],
      ['DELETE', 405],
    ] as const) {
      assert.equal((await service.call(method, `/invite/${shown}`)).status, status);
    }
    assert.equal((await service.call('GET', `/invite/${shown}/more`)).status, 404);
    const redeem = (more: object) => service.call('POST', '/api/v1/invites/redeem/', { secret: shown, ...more });
    assert.equal((await redeem({ reason: 'none' })).status, 422);
    if (name === 'the link that is redeemed') {
      for (const status of [200, 410]) assert.equal((await redeem({})).status, status);
    }
  }

  // From here on secrets are used in every possible way.
  for (const instance_id of ['given', ...Object.keys(machines)]) {
    await post('/api/v1/instances/join-meeting/', { instance_id, meeting_id: 'm', agent_ids: ['a'] });
    await post('/api/v1/instances/webhook-test/', { instance_id });
    await post(`/api/v1/instances/${instance_id}/heartbeat/`);
  }
  await post('/api/v1/meetings/m/messages/', { message: { content: 'hello' } });
  await attempted(service, 4);
  await sendBadRequests(service, refused, good.url);
  for (const path of [
    '/api/v1/instances/',
    '/api/v1/instances/given/',
    '/api/v1/meetings/m/instances/',
    '/metrics',
    '/readyz',
    '/openapi.json',
  ]) {
    assert.equal((await service.call('GET', path)).status, 200);
  }
  const { data } = JSON.parse((await service.call('GET', '/api/v1/deliveries/')).text) as {
    data: { delivery_id: string; instance_id: string }[];
  };
  for (const { delivery_id } of data) await service.call('GET', `/api/v1/deliveries/${delivery_id}/`);
  const failed = data.find(({ instance_id }) => instance_id === 'unkind')!;
  await post(`/api/v1/deliveries/${failed.delivery_id}/retry/`);
  const answered = failing.requests.length;
  await post('/api/v1/instances/failing/recover/', { since: '2026-01-01T00:00:00Z' });
  await failing.count(answered + 1);
  await service.cli(['invites', 'list', '--json']);
  await service.cli(['instances', 'list', '--json']);
  await service.cli(['instances', 'show', 'failing']);
  await service.cli(['webhook-test', 'failing', '--json']);
  await service.cli(['deliveries', 'show', failed.delivery_id]);
  service.keepFiles('while it runs,');

  // The data key itself: first in its file, then as a setting, with a change between the two.
  const key = keyCanaryOf('the data key', readFileSync(join(service.data, KEY_FILE), 'utf8').trim());
  const next_key = keyCanaryOf('the next data key', randomBytes(32).toString('base64'));
  canaries.push(key, next_key);
  assert.equal((await service.cli(['keys', 'reencrypt', '--json'])).code, 0);
  const changed_key = keyCanaryOf('the changed data key', readFileSync(join(service.data, KEY_FILE), 'utf8').trim());
  canaries.push(changed_key);
  await service.stop();
  assert.notEqual(changed_key.text, key.text);

  const keys = { CONVOKE_ENCRYPTION_KEY: next_key.text, CONVOKE_ENCRYPTION_KEY_PREVIOUS: changed_key.text };
  await service.start(['--log-format', 'pretty'], keys);
  assert.equal((await service.cli(['keys', 'reencrypt'])).code, 0);
  assert.equal((await service.call('POST', '/api/v1/encryption/reencrypt/')).status, 409);
  await service.cli(['doctor', '--json', '--data', service.data], keys);
  const config = await service.cli(['config', '--json'], keys);
  assert.match(config.stdout, /"name": "encryption_key",\s*"from": "environment",\s*"value": "\(hidden\)"/);
  await service.cli(['config'], keys);
  for (const wrong of [`${next_key.text}=`, next_key.text.slice(4), refused.text]) {
    const { code } = await service.cli(['serve', '--port', '0', '--data', service.data], {
      CONVOKE_ENCRYPTION_KEY: wrong,
    });
    assert.equal(code, 2);
  }
  const { code } = await service.cli(['config', '--encryption-key', next_key.text.slice(0, 4)]);
  assert.equal(code, 2, 'there is no flag for it');
  await service.stop();

  // The store fails: the secrets of a row cannot be decrypted.
  const db = new DatabaseSync(join(service.data, DATABASE_FILE));
  db.exec(
    "UPDATE instances SET webhook_secret = (SELECT webhook_secret FROM instances WHERE instance_id = 'given') WHERE instance_id = 'failing'",
  );
  db.close();
  const { CONVOKE_ENCRYPTION_KEY } = keys;
  await service.start(['--log-format', 'json'], { CONVOKE_ENCRYPTION_KEY });
  assert.equal((await service.call('GET', '/api/v1/instances/failing/')).status, 503);
  // One damaged row does not hide the others of a list.
  assert.equal((await service.call('GET', '/api/v1/instances/')).status, 200);
  await service.stop();
  assert.match(service.log, /SECRET_UNREADABLE/);
  const refusing = await service.cli(['serve', '--port', '0', '--data', service.data], {
    CONVOKE_ENCRYPTION_KEY: changed_key.text,
  });
  assert.equal(refusing.code, 1);

  const backup = mkdtempSync(join(tmpdir(), 'convoke-canaries-'));
  t.after(() => rmSync(backup, { recursive: true, force: true }));
  copyFiles(service.data, backup);
  service.keepFiles('the backup,', backup);

  // The pushes contained the secrets, so the search looks for values that are really used.
  for (const receiver of [good, failing, unkind, cutting]) {
    assert.ok(receiver.requests.some(({ headers: sent }) => sent['x-key'] === plain_value.text));
  }
  assert.ok(failing.requests.some(({ headers: sent }) => sent['authorization'] === `Bearer ${patched.text}`));
  const texts = [...service.texts.keys()].join('\n');
  for (const kind of [
    'the log',
    'convoke.db',
    'convoke.db-wal',
    'the backup',
    '/metrics',
    'convoke config',
    'webhook-test',
  ]) {
    assert.ok(texts.includes(kind), `${kind} was searched`);
  }
  assert.ok(service.texts.size > 100);
  assert.deepEqual(findCanaries(canaries, service.texts), []);

  // Control: the search finds each canary, planted in each text and in each form.
  for (const canary of canaries) {
    for (const [form, value] of canary.forms) {
      const planted = new Map(
        [...service.texts].slice(-1).map(([where, bytes]) => [where, Buffer.concat([bytes, value])]),
      );
      assert.notDeepEqual(findCanaries([canary], planted), [], `${canary.name} ${form}`);
    }
  }
  // The search also finds secrets in texts that the canaries did not make themselves.
  assert.notDeepEqual(findCanaries(canaries, contentsOfKeyFileOf(key)), []);
  assert.notDeepEqual(findCanaries([token], new Map([['a push', Buffer.from(echo(good.requests[0]!))]])), []);
  const notes = Buffer.from(`x${Buffer.from(`Basic me:${token.text}:you`).toString('base64')}x`);
  assert.notDeepEqual(findCanaries([token], new Map([['base64 of a longer text', notes]])), []);
  assert.deepEqual(findCanaries([canaryOf('nowhere', 'nowhere to be found')], service.texts), []);
});

function contentsOfKeyFileOf({ text }: Canary): Map<string, Buffer> {
  return new Map([['a key file', Buffer.from(`${text}\n`)]]);
}
