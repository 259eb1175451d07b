/** The installed program: its name in hints, and the directory of its compiled code. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { VERSION } from '../../src/version.ts';
import { temporaryDirectory } from '../support/command_line.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const MAIN = join(ROOT, 'src/cli/main.ts');

function run(
  args: string[],
  { cwd, env = {}, main = MAIN }: { cwd: string; env?: Record<string, string>; main?: string },
): string {
  // Leaves out the directory that `npm test` names for compiled code, so the program chooses its own.
  const own = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.startsWith('CONVOKE_') && name !== 'NODE_COMPILE_CACHE'),
  );
  const { stdout, stderr, status } = spawnSync(process.execPath, [main, ...args], {
    cwd,
    env: { ...own, ...env },
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
  return stdout;
}

/** The command with which the help says to start the service. */
function hintOf(help: string): string | undefined {
  return /^ {2}(.*) serve +run the service$/m.exec(help)?.[1];
}

test('hints work as typed: npx in the clone, the path of the program outside of it', (t) => {
  const elsewhere = temporaryDirectory(t);
  assert.equal(hintOf(run(['--help'], { cwd: ROOT })), 'npx convoke');
  assert.equal(hintOf(run(['--help'], { cwd: join(ROOT, 'docs') })), 'npx convoke');
  assert.equal(hintOf(run(['--help'], { cwd: elsewhere })), MAIN);
  assert.match(run(['send', '--help'], { cwd: elsewhere }), new RegExp(`^  \\$ ${MAIN} send`, 'm'));
});

test('hints quote the path of the program where a shell needs that', (t) => {
  const elsewhere = temporaryDirectory(t);
  const clone = join(elsewhere, 'my clone');
  for (const part of ['package.json', 'src']) cpSync(join(ROOT, part), join(clone, part), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(clone, 'node_modules'));
  const main = join(clone, 'src/cli/main.ts');
  assert.equal(hintOf(run(['--help'], { cwd: elsewhere, main })), `'${main}'`);
});

test('hints say convoke where the shell finds this program under that name, and not where only npm does', (t) => {
  const elsewhere = temporaryDirectory(t);
  const path = (directory: string): Record<string, string> => {
    const bin = join(elsewhere, directory);
    mkdirSync(bin, { recursive: true });
    symlinkSync(MAIN, join(bin, 'convoke'));
    return { PATH: [bin, process.env['PATH']].join(delimiter) };
  };
  assert.equal(hintOf(run(['--help'], { cwd: elsewhere, env: path('bin') })), 'convoke');
  assert.equal(hintOf(run(['--help'], { cwd: elsewhere, env: path('node_modules/.bin') })), MAIN);
});

test('another program named convoke on the path is not what hints mean', (t) => {
  const elsewhere = temporaryDirectory(t);
  symlinkSync(process.execPath, join(elsewhere, 'convoke'));
  const PATH = [elsewhere, process.env['PATH']].join(delimiter);
  assert.equal(hintOf(run(['--help'], { cwd: elsewhere, env: { PATH } })), MAIN);
});

test('compiled code is kept where only this user can write', (t) => {
  const cache = temporaryDirectory(t);
  run(['--help'], { cwd: ROOT, env: { XDG_CACHE_HOME: cache } });
  assert.notEqual(readdirSync(join(cache, 'convoke/compiled')).length, 0);
});

for (const opened of ['.', 'convoke', 'convoke/compiled']) {
  test(`compiled code is neither kept nor run where another user could put some: ${opened} open to others`, (t) => {
    const cache = temporaryDirectory(t);
    mkdirSync(join(cache, 'convoke/compiled'), { recursive: true, mode: 0o700 });
    chmodSync(join(cache, opened), 0o777);
    run(['--help'], { cwd: ROOT, env: { XDG_CACHE_HOME: cache } });
    assert.deepEqual(readdirSync(join(cache, 'convoke/compiled')), []);
  });
}

test('the directory for temporary files holds no compiled code', (t) => {
  const TMPDIR = temporaryDirectory(t);
  run(['--help'], { cwd: ROOT, env: { TMPDIR, XDG_CACHE_HOME: '/dev/null' } });
  assert.equal(existsSync(join(TMPDIR, 'node-compile-cache')), false);
});

test('--version prints the version', () => {
  assert.equal(run(['--version'], { cwd: ROOT }), `${VERSION}\n`);
});
