/** The files in docs/deploy, as far as a test can check them without their machines. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test, type TestContext } from 'node:test';
import { parse } from 'yaml';
import { PROGRAM_OF_PACKAGE } from '../../scripts/bundle.ts';
import { settingNames, variableOf } from '../../src/config/settings.ts';
import { contains, parseAddress, parseCidr } from '../../src/domain/address.ts';
import { clientAddress } from '../../src/domain/client_address.ts';
import { temporaryDirectory } from '../support/command_line.ts';
import { outcomeOf, RawClient } from '../support/raw_client.ts';
import { startService } from '../support/service.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const read = (path: string): string => readFileSync(join(ROOT, 'docs/deploy', path), 'utf8');

/**
 * Replaces the paths to Node and Convoke in a unit by the paths on this machine. Returns the faults that systemd then
 * finds in the unit; empty when it finds none.
 */
function faultsOf(t: TestContext, unit: string): string {
  const file = join(temporaryDirectory(t), 'convoke.service');
  const here = unit.replaceAll('/usr/bin/node', process.execPath).replaceAll('/opt/convoke', ROOT.replace(/\/$/, ''));
  writeFileSync(file, here);
  const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' });
  return status === 0 && stdout + stderr === '' ? '' : `${status}: ${stdout}${stderr}`;
}

const has_systemd = spawnSync('systemd-analyze', ['--version']).status === 0;

test(
  'systemd takes the unit, and would say so if it did not',
  { skip: has_systemd ? false : 'there is no systemd-analyze here' },
  (t) => {
    const unit = read('convoke.service');
    assert.equal(faultsOf(t, unit), '');
    assert.match(faultsOf(t, unit.replace('NoNewPrivileges=', 'NoNewPrivilege=')), /NoNewPrivilege/);
    assert.match(faultsOf(t, unit.replace('/usr/bin/node', '/usr/bin/none')), /none/);
  },
);

test('the unit is hardened, and gives a stop the time it takes', () => {
  const unit = read('convoke.service');
  for (const line of [
    'Type=exec',
    'NoNewPrivileges=yes',
    'ProtectSystem=strict',
    'StateDirectory=convoke',
    'StateDirectoryMode=0700',
    'TimeoutStopSec=10',
    'CapabilityBoundingSet=',
  ]) {
    assert.ok(unit.split('\n').includes(line), line);
  }
  assert.match(unit, /^LimitNOFILE=\d{5,}$/m);
});

test('the unit and the image run what the package has, and the image is made of nothing else', () => {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  const unit = read('convoke.service');
  const dockerfile = read('Dockerfile');
  const program = PROGRAM_OF_PACKAGE.replace('./', '');
  assert.match(unit, new RegExp(`^ExecStart=/usr/bin/node /opt/convoke/${program} serve$`, 'm'));
  assert.ok(unit.includes(`convoke-${version}.tgz`));
  assert.match(dockerfile, new RegExp(`^WORKDIR /opt/convoke$[^]*^ENTRYPOINT \\["node", "${program}"\\]$`, 'm'));
  assert.deepEqual(
    [...dockerfile.matchAll(/^COPY (?!--from)(\S+)/gm)].map(([, source]) => source),
    ['convoke-[0-9]*.tgz'],
  );
  assert.equal(read('Dockerfile.dockerignore'), '*\n!convoke-[0-9]*.tgz\n');
});

test('the image: by digest, of one layer without npm, and nobody in it is root', () => {
  const [, last = ''] = read('Dockerfile').split(/^FROM scratch$/m);
  assert.match(last, /^USER node$/m);
  assert.doesNotMatch(last, /^RUN/m);
  assert.doesNotMatch(read('Dockerfile'), /^\s*(RUN|&&) .*\b(npm|npx) /m);
});

test('every image is named by its digest', () => {
  const images = [
    ...read('Dockerfile').matchAll(/^ARG NODE_IMAGE=(\S+)$/gm),
    ...read('Dockerfile').matchAll(/^FROM (\S+)/gm),
  ];
  const { services } = parse(read('compose.yaml'), { merge: true }) as Compose;
  const named = [...images.map(([, image]) => image), ...Object.values(services).map(({ image }) => image)];
  // Earlier stages, the empty image, and the image that the Dockerfile makes.
  const own = ['${NODE_IMAGE}', 'scratch', 'convoke'];
  const of_others = [...new Set(named)].filter((image) => !own.includes(image!));
  assert.equal(of_others.length, 3);
  for (const image of of_others) assert.match(image!, /^[\w.:/-]+@sha256:[0-9a-f]{64}$/);
});

interface Compose {
  services: Record<
    string,
    {
      image?: string;
      environment?: Record<string, string>;
      volumes?: string[];
      networks?: string[] | Record<string, { ipv4_address: string }>;
      depends_on?: object;
    }
  >;
  volumes: object;
  networks: Record<string, { ipam: { config: { subnet: string }[] } }>;
}

test('every setting that the files name exists', () => {
  const known = settingNames().map(variableOf);
  // compose.yaml sets this variable, because its nodes use PostgreSQL.
  known.push('CONVOKE_DATABASE_URL');
  for (const file of ['convoke.service', 'Dockerfile', 'compose.yaml', 'nginx.conf']) {
    const named = [...read(file).matchAll(/\bCONVOKE_[A-Z_]+\b/g)].map(([name]) => name);
    for (const name of named) assert.ok(known.includes(name) || name === 'CONVOKE_NAME', `${file}: ${name}`);
  }
});

test('compose: what services refer to is there, and all nodes are alike but for their names', () => {
  const { services, volumes, networks } = parse(read('compose.yaml'), { merge: true }) as Compose;
  const nodes = Object.entries(services).filter(([name]) => name.startsWith('node-'));
  assert.equal(nodes.length, 3);
  for (const [hostname, node] of nodes) assert.deepEqual(node, { ...nodes[0]![1], hostname });
  for (const [name, { depends_on = {}, networks: used = [], volumes: mounted = [] }] of Object.entries(services)) {
    const needed = Array.isArray(depends_on) ? depends_on : Object.keys(depends_on);
    for (const other of needed) assert.ok(other in services, `${name} depends on ${other}`);
    for (const network of Array.isArray(used) ? used : Object.keys(used))
      assert.ok(network in networks, `${name}: ${network}`);
    for (const volume of mounted) {
      const [source = ''] = volume.split(':');
      assert.ok(source.startsWith('./') ? read(source) !== '' : source in volumes, `${name}: ${source}`);
    }
  }
  for (const file of ['nginx.conf', 'haproxy.cfg']) {
    const named = [...read(file).matchAll(/server (?:[\w-]+ )?(node-\d):8080/g)].map(([, name]) => name);
    assert.deepEqual(
      named,
      nodes.map(([name]) => name),
      file,
    );
  }
});

test('compose: X-Forwarded-For counts from nginx alone, and pushes go to public addresses', () => {
  const { services, networks } = parse(read('compose.yaml'), { merge: true }) as Compose;
  const { environment = {} } = services['node-1']!;
  const trusted = environment['CONVOKE_TRUST_PROXY']!.split(',').map((range) => parseCidr(range)!);
  const { ipv4_address: nginx } = (services['nginx']!.networks as Record<string, { ipv4_address: string }>)['convoke']!;
  const { subnet } = networks['convoke']!.ipam.config[0]!;
  assert.ok(contains(parseCidr(subnet)!, parseAddress(nginx)!));
  const gateway = nginx.replace(/\d+$/, '1');
  // A request to the published port reaches nginx from the gateway. nginx adds the address of the gateway to the header
  // that the client wrote.
  assert.equal(clientAddress(nginx, `203.0.113.7, ${gateway}`, trusted), gateway);
  assert.equal(clientAddress(gateway, '203.0.113.7', trusted), gateway);
  assert.equal(clientAddress(nginx, `203.0.113.7, ${gateway}`, [parseCidr(subnet)!]), '203.0.113.7', 'the control');
  assert.equal(environment['CONVOKE_EGRESS'], 'public');
});

test('the unit is started again for as long as it takes, also while its disk is full', () => {
  const [, unit = ''] = /\[Unit\]([^]*?)\n\[/.exec(read('convoke.service')) ?? [];
  // With the limit of systemd, five starts in 10 s are the last ones.
  assert.match(unit, /^StartLimitIntervalSec=0$/m);
  assert.match(read('convoke.service'), /^Restart=always$/m);
});

test('nginx passes Host on with its port, so that links lead back and pages count as pages of the service', async (t) => {
  const service = await startService(t, { trust_proxy: '127.0.0.1/32' });
  const { token } = await service.endOpenMode();
  const security = readFileSync(join(ROOT, 'SECURITY.md'), 'utf8');
  for (const [file, text] of Object.entries({ 'nginx.conf': read('nginx.conf'), 'SECURITY.md': security })) {
    const [, variable = ''] = /proxy_set_header Host (\S+);/.exec(text) ?? [];
    const host = { $http_host: 'convoke.example:8443', $host: 'convoke.example' }[variable];
    assert.ok(host !== undefined, file);
    const head = `POST /api/v1/invites/ HTTP/1.1\r\nhost: ${host}\r\nx-forwarded-proto: https\r\nauthorization: Bearer ${token}`;
    const body = '{"meeting_ids":["m"],"agent_ids":["a"]}';
    const sent = `${head}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`;
    const client = new RawClient(service.url);
    client.write(sent);
    const [answer] = await client.read();
    assert.match(answer!.text, /"link":"https:\/\/convoke\.example:8443\/invite\//, file);
  }
});

test('nginx passes the live feed on as it arrives', () => {
  const [, feed = ''] = /location \/api\/v1\/events\/ \{([^}]*)\}/.exec(read('nginx.conf')) ?? [];
  assert.match(feed, /proxy_buffering off;/);
  assert.match(feed, /gzip off;/);
});

test('nginx gives up on a node that hangs before a sender does, and after a node that has no database', () => {
  const [, path = '', sending = ''] = /location ~ (\S+) \{([^}]*)\}/.exec(read('nginx.conf')) ?? [];
  assert.match('/api/v1/meetings/standup-42/messages/', new RegExp(path));
  const [, seconds = ''] = /proxy_read_timeout (\d+)s;/.exec(sending) ?? [];
  assert.ok(Number(seconds) > 5 && Number(seconds) < 10, seconds);
});

test('what cluster.md puts into /etc/convoke.env systemd reads as it is meant: a remark is no part of a value', () => {
  const cluster = readFileSync(join(ROOT, 'docs/cluster.md'), 'utf8');
  const [, settings = ''] = /into `\/etc\/convoke\.env`:\s+```sh\n([^`]*)```/.exec(cluster) ?? [];
  const lines = settings.split('\n').map((line) => line.trim());
  assert.ok(lines.some((line) => line.startsWith('CONVOKE_TRUST_PROXY=')));
  for (const line of lines) assert.match(line, /^(?:#.*|CONVOKE_[A-Z_]+=[^\s#]+)?$/);
});

test('the health check of HAProxy is a request that a node accepts', async (t) => {
  const [, method = '', path = '', version = '', host = ''] =
    /http-check send meth (\S+) uri (\S+) ver (\S+) hdr Host (\S+)/.exec(read('haproxy.cfg')) ?? [];
  const service = await startService(t);
  const ask = (head: string): Promise<string> => outcomeOf(service.url, `${head}\r\n\r\n`);
  assert.equal(await ask(`${method} ${path} ${version}\r\nHost: ${host}`), '200');
  // The control: without the setting, HAProxy sends this request.
  assert.equal(await ask(`${method} ${path} HTTP/1.0`), '400 malformed_request');
});
