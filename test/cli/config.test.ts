/** Settings: every valid value takes effect, and a value that makes no sense is refused with advice. */
import assert from 'node:assert/strict';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { ConfigError, readConfig } from '../../src/config/read_config.ts';
import { fileVariableOf, flagOf, isSecret, settingNames, SETTINGS, variableOf } from '../../src/config/settings.ts';
import { isLoopbackHost } from '../../src/domain/host.ts';
import { settingsTable } from '../../src/config/settings_table.ts';
import { temporaryDirectory } from '../support/command_line.ts';

/** The faults that readConfig finds in settings. */
function faultsOf(input: Parameters<typeof readConfig>[0]): readonly string[] {
  try {
    readConfig(input);
  } catch (error) {
    assert(error instanceof ConfigError);
    return error.faults;
  }
  assert.fail('these settings must be refused');
}

test('without a flag or a variable every setting has its default', () => {
  const { config, sources } = readConfig({});
  assert.deepEqual(config, {
    host: '127.0.0.1',
    port: 8080,
    advertised_url: null,
    public_url: null,
    environment: null,
    data: './data',
    egress_policy: { mode: 'local', allow: [], allow_http: false },
    database_url: null,
    encryption_key: null,
    encryption_key_previous: null,
    retry_schedule_ms: [10_000, 30_000, 120_000, 600_000, 1_800_000],
    expire_after_ms: 72 * 3_600_000,
    trust_clock: false,
    retention_deliveries_ms: 7 * 86_400_000,
    retention_messages_ms: 30 * 86_400_000,
    retention_audit_ms: 400 * 86_400_000,
    hop_limit: 16,
    pair_limit: 20,
    pair_window_s: 60,
    max_in_flight: 4000,
    instance_concurrency: 4,
    max_message_bytes: 262_144,
    max_request_bytes_in_flight: 67_108_864,
    max_connections: 10_000,
    max_feed_listeners: 100,
    cors_origins: [],
    portal_origins: [],
    trust_proxy: [],
    send_rate: null,
    send_rate_per_address: null,
    register_rate: { per_second: 100, burst: 10_000 },
    change_rate: { per_second: 20, burst: 10_000 },
    register_rate_per_address: { per_second: 100, burst: 10_000 },
    auth_failure_rate: { per_second: 10, burst: 100 },
    max_instances: 100_000,
    max_instances_per_key: 10_000,
    max_instances_per_meeting: 10_000,
    max_meetings_per_instance: 10_000,
    notices_meeting: null,
    changed_settings: [],
    log_level: 'info',
    log_format: 'auto',
  });
  assert(Object.values(sources).every(({ from }) => from === 'default'));
});

test('a flag wins over a variable, a variable over the default, and the source says which it was', () => {
  const { config, sources } = readConfig({
    flags: { port: '0' },
    env: { CONVOKE_PORT: '9000', CONVOKE_DATA: '/srv/convoke', PATH: '/bin' },
  });
  assert.equal(config.port, 0);
  assert.equal(config.data, '/srv/convoke');
  assert.deepEqual(sources.port, { from: 'flag', value: '0' });
  assert.deepEqual(sources.data, { from: 'environment', value: '/srv/convoke' });
  assert.deepEqual(sources.host, { from: 'default', value: '127.0.0.1' });
});

test('a variable that is empty counts as not set; a flag that is empty is refused where that means nothing', () => {
  assert.equal(readConfig({ env: { CONVOKE_PORT: '', CONVOKE_DATA: '' } }).config.port, 8080);
  assert.deepEqual(readConfig({ flags: { egress_allow: '' } }).config.egress_policy.allow, []);
  assert.match(faultsOf({ flags: { data: '' } })[0]!, /^--data "" must be the path of a directory$/);
});

test('all faults are reported at once, each with its place and what is expected', () => {
  const faults = faultsOf({
    flags: { port: '65536', log_level: 'verbose' },
    env: { CONVOKE_EXPIRE_AFTER: '3 weeks', CONVOKE_INSTANCE_CONCURRENCY: '65', CONVOKE_PROT: '1' },
  });
  assert.deepEqual(faults, [
    'CONVOKE_PROT is not a setting; did you mean CONVOKE_PORT?',
    '--port "65536" must be a whole number from 0 to 65535',
    'CONVOKE_EXPIRE_AFTER="3 weeks" must be a duration from 1s to 30d (ms, s, m, h or d)',
    'CONVOKE_INSTANCE_CONCURRENCY="65" must be a whole number from 1 to 64',
    '--log-level "verbose" must be one of trace, debug, info, warn, error, fatal, silent',
  ]);
});

test('a database may have several hosts; an address that is none is refused without being repeated', () => {
  const url = 'postgres://u:the-password@a:1,b:2/db?target_session_attrs=read-write';
  assert.equal(readConfig({ env: { CONVOKE_DATABASE_URL: url } }).config.database_url, url);
  const [fault] = faultsOf({ env: { CONVOKE_DATABASE_URL: url.replace('read-write', 'standby') } });
  assert.match(
    fault!,
    /must be a URL such as .*target_session_attrs=read-write \(or primary, or any\)\. In the password/,
  );
  assert.doesNotMatch(fault!, /the-password/);
});

test('an address of a database with a password that is not encoded is refused, and no part of the password counts as a port', () => {
  for (const password of ['12/ss', '12/s=', '12#ss', 'pa/ss', 'pa?ss']) {
    const CONVOKE_DATABASE_URL = `postgres://u:${password}@a:1/db`;
    assert.match(faultsOf({ env: { CONVOKE_DATABASE_URL } })[0]!, /In the password `?\/`? is `?%2F/, password);
    readConfig({ env: { CONVOKE_DATABASE_URL: CONVOKE_DATABASE_URL.replace(password, encodeURIComponent(password)) } });
  }
  assert.match(
    faultsOf({ env: { CONVOKE_DATABASE_URL: 'postgres://a:1/db%zz' } })[0]!,
    /^CONVOKE_DATABASE_URL must be/,
  );
  readConfig({ env: { CONVOKE_DATABASE_URL: 'postgres://a:1/db?user=me@here&application_name=100%' } });
});

test('a variable with our prefix that is no setting is refused, except those that the client commands read', () => {
  assert.match(faultsOf({ env: { CONVOKE_MAXINFLIGHT: '5' } })[0]!, /did you mean CONVOKE_MAX_IN_FLIGHT\?$/);
  assert.match(
    faultsOf({ env: { CONVOKE_ENCRYPTON_KEY_FILE: '/k' } })[0]!,
    /did you mean CONVOKE_ENCRYPTION_KEY_FILE\?$/,
  );
  assert.match(faultsOf({ env: { CONVOKE_QQQQQQ: '5' } })[0]!, /docs\/settings\.md/);
  readConfig({ env: { CONVOKE_URL: 'http://127.0.0.1:9000', CONVOKE_API_KEY: 'cvk_' } });
});

test('a secret may come from a file: it takes effect without its line break, and is not shown', (t) => {
  const file = join(temporaryDirectory(t), 'secret');
  const key = Buffer.alloc(32, 7).toString('base64');
  for (const end of ['', '\n', '\r\n']) {
    writeFileSync(file, key + end);
    const { config, sources } = readConfig({ env: { CONVOKE_ENCRYPTION_KEY_FILE: file } });
    assert.deepEqual(config.encryption_key?.export(), Buffer.alloc(32, 7));
    assert.deepEqual(sources.encryption_key, { from: 'file', value: '(hidden)' });
    assert(config.changed_settings.includes('encryption_key'));
  }
  writeFileSync(file, 'postgres://u:p@a:1/db\n');
  assert.equal(readConfig({ env: { CONVOKE_DATABASE_URL_FILE: file } }).config.database_url, 'postgres://u:p@a:1/db');
  assert.equal(readConfig({ env: { CONVOKE_DATABASE_URL_FILE: '' } }).config.database_url, null);
});

test('a secret without a usable file is refused with the name of its variable and what to do', (t) => {
  const directory = temporaryDirectory(t);
  const file = join(directory, 'secret');
  const faultOf = (env: Record<string, string>): string => {
    const faults = faultsOf({ env });
    assert.equal(faults.length, 1);
    return faults[0]!;
  };
  for (const name of settingNames().filter(isSecret)) {
    const variable = fileVariableOf(name);
    assert.equal(
      faultOf({ [variable]: file }),
      `${variable}: there is no ${file}; give the path of the file that holds the secret`,
    );
    assert.equal(
      faultOf({ [variable]: directory }),
      `${variable}: ${directory} is a directory; give the path of the file in it`,
    );
  }
  const CONVOKE_ENCRYPTION_KEY_FILE = file;
  for (const text of ['', '\n']) {
    writeFileSync(file, text);
    assert.match(faultOf({ CONVOKE_ENCRYPTION_KEY_FILE }), /^CONVOKE_ENCRYPTION_KEY_FILE: .* is empty; put the secret/);
  }
  writeFileSync(file, 'not-the-key-of-anything\n');
  const fault = faultOf({ CONVOKE_ENCRYPTION_KEY_FILE });
  assert.match(fault, /^the text in the file of CONVOKE_ENCRYPTION_KEY_FILE must be the base64 of 32 bytes/);
  assert.doesNotMatch(fault, /not-the-key/);
  assert.equal(
    faultOf({ CONVOKE_ENCRYPTION_KEY_FILE, CONVOKE_ENCRYPTION_KEY: Buffer.alloc(32).toString('base64') }),
    'CONVOKE_ENCRYPTION_KEY and CONVOKE_ENCRYPTION_KEY_FILE are both set; leave one of them out',
  );
  // Only secrets come from files.
  assert.match(faultOf({ CONVOKE_PORT_FILE: file }), /^CONVOKE_PORT_FILE is not a setting/);
  if (process.getuid?.() === 0) return;
  chmodSync(file, 0);
  assert.match(faultOf({ CONVOKE_ENCRYPTION_KEY_FILE }), /cannot be read \(EACCES\); let the user of this process/);
});

test('the variables that Kubernetes sets for a Service named convoke are told apart from typing mistakes', () => {
  const env = { CONVOKE_SERVICE_HOST: '10.0.0.1', CONVOKE_SERVICE_PORT: '80', CONVOKE_PORT: 'tcp://10.0.0.1:80' };
  assert.match(faultsOf({ env })[0]!, /enableServiceLinks: false/);
});

test('a host that other machines can reach differs from loopback: pushes are public there by default', () => {
  for (const host of [
    '0.0.0.0',
    '::',
    '192.168.1.5',
    '10.0.0.1',
    'example.com',
    '128.0.0.1',
    '::2',
    '127.0.0.1.example.com',
  ]) {
    assert.equal(readConfig({ flags: { host } }).config.egress_policy.mode, 'public', host);
    assert(!isLoopbackHost(host), host);
  }
  for (const host of [
    '127.0.0.1',
    '127.8.8.8',
    '::1',
    'localhost',
    'LOCALHOST',
    'convoke.localhost',
    '::ffff:127.0.0.1',
  ]) {
    assert.equal(readConfig({ flags: { host } }).config.host, host);
    assert(isLoopbackHost(host));
  }
});

test('a host has no port and no scheme: such a text would count as a machine that others can reach', () => {
  for (const host of [
    '',
    ' ',
    '127.0.0.1:8080',
    '[::1]',
    '[::1]:8080',
    'http://127.0.0.1',
    'localhost/',
    'no such host',
  ])
    assert.match(faultsOf({ flags: { host } })[0]!, /must be an address or a host name, without a port$/, host);
  for (const host of ['fe80::1%eth0', 'node_1', 'bücher.example'])
    assert.equal(readConfig({ flags: { host } }).config.host, host);
});

test('behind a proxy pushes are public by default, on loopback too: the callers are elsewhere', () => {
  const flags = { trust_proxy: '127.0.0.1/32' };
  const { config, sources } = readConfig({ flags });
  assert.deepEqual([config.egress_policy.mode, sources.egress.value], ['public', 'public']);
  assert.equal(readConfig({ flags: { ...flags, egress: 'local' } }).config.egress_policy.mode, 'local');
  assert.equal(readConfig({}).config.egress_policy.mode, 'local');
});

test('the egress policy is made of its three settings', () => {
  const { egress_policy } = readConfig({
    flags: { egress: 'public', egress_allow: '10.0.0.0/8, fd00::/8', egress_allow_http: 'true' },
  }).config;
  assert.equal(egress_policy.mode, 'public');
  assert.deepEqual(
    egress_policy.allow.map(({ prefix_bits }) => prefix_bits),
    [8, 8],
  );
  assert.equal(egress_policy.allow_http, true);
});

test('a range that does not mean what it seems to is refused', () => {
  for (const egress_allow of ['10.0.0.1/8', '10.0.0.0/33', '10/8', 'example.com', '10.0.0.0/8,', '010.0.0.0/8']) {
    assert.match(faultsOf({ flags: { egress_allow } })[0]!, /must be CIDR ranges/, egress_allow);
  }
});

test('durations are read with their unit, and never without one', () => {
  const expireAfter = (text: string): number => readConfig({ flags: { expire_after: text } }).config.expire_after_ms;
  assert.equal(expireAfter('1500ms'), 1500);
  assert.equal(expireAfter('90s'), 90_000);
  assert.equal(expireAfter('5m'), 300_000);
  assert.equal(expireAfter('2h'), 7_200_000);
  assert.equal(expireAfter('3d'), 259_200_000);
  assert.deepEqual(readConfig({ flags: { retry_schedule: '50ms, 1s' } }).config.retry_schedule_ms, [50, 1000]);
  for (const text of ['90', '1.5h', '-5s', '5 s', '1h30m', '', '999ms', '31d', '1e3s', '5S']) {
    assert.match(faultsOf({ flags: { expire_after: text } })[0]!, /must be a duration/, text);
  }
  for (const text of ['none', '1s,', '25h', Array(21).fill('1s').join()]) {
    assert.match(faultsOf({ flags: { retry_schedule: text } })[0]!, /durations/, text);
  }
});

test('a whole number is taken within its bounds and in no other notation', () => {
  for (const port of ['0', '1', '65535', '080'])
    assert.equal(readConfig({ flags: { port } }).config.port, Number(port));
  for (const port of ['-1', '65536', '0x50', '8e3', ' 80', '80.0', '٨٠', '1'.repeat(400)]) {
    assert.match(faultsOf({ flags: { port } })[0]!, /must be a whole number/, port);
  }
});

test('whatever the text, a setting is refused with a readable fault or is within its bounds', () => {
  fc.assert(
    fc.property(fc.constantFrom(...settingNames()), fc.string({ unit: 'binary' }), (name, text) => {
      try {
        readConfig({ flags: { [name]: text } });
      } catch (error) {
        assert(error instanceof ConfigError);
        assert.equal(error.faults.length, 1);
        assert.doesNotMatch(error.faults[0]!, /undefined|NaN|\n/);
        assert(error.faults[0]!.startsWith(isSecret(name) ? variableOf(name) : flagOf(name)));
        assert(!isSecret(name) || !error.faults[0]!.includes(JSON.stringify(text)));
      }
    }),
  );
});

test('every default is a value that its own setting takes, and every setting is in the documentation', () => {
  const table = settingsTable();
  for (const name of settingNames()) {
    assert.notEqual(SETTINGS[name].parse(SETTINGS[name].default), undefined, name);
    const given = isSecret(name)
      ? `\`${variableOf(name)}\` or \`${fileVariableOf(name)}\` | none`
      : `\`${variableOf(name)}\` | \`${flagOf(name)}\``;
    assert(table.includes(`| ${given} |`), name);
    assert.match(SETTINGS[name].sentence, /\.$/, name);
  }
});

test('where a node is reached is an http URL without a query or credentials', () => {
  const read = (advertised_url: string): string | null =>
    readConfig({ flags: { advertised_url } }).config.advertised_url;
  assert.equal(read('http://node-1:8080'), 'http://node-1:8080');
  assert.equal(read('https://convoke.example/node-1/'), 'https://convoke.example/node-1');
  assert.equal(read(''), null);
  for (const wrong of [
    'node-1:8080',
    'ftp://node-1',
    'http://me:secret@node-1',
    'http://node-1/?x',
    `http://${'n'.repeat(200)}`,
  ])
    assert.match(
      faultsOf({ flags: { advertised_url: wrong } })[0]!,
      /^--advertised-url .* must be a URL such as/,
      wrong,
    );
});

test('the name of the environment is short enough for the head of a page', () => {
  const read = (environment: string): string | null => readConfig({ flags: { environment } }).config.environment;
  assert.equal(read(' staging '), 'staging');
  assert.equal(read('é'.repeat(24)), 'é'.repeat(24));
  assert.equal(read('  '), null);
  for (const wrong of ['x'.repeat(25), 'a\nb', '\u0000'])
    assert.match(faultsOf({ flags: { environment: wrong } })[0]!, /^--environment .* must be a name of at most 24/);
});
