/** What counts as proof that the process of a node has ended, and what does not. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { NodeProcesses } from '../../src/store/postgres/cluster/node_processes.ts';

const skip = process.platform !== 'linux';
const HOUR = 3_600_000;
const MODULE = new URL('../../src/store/postgres/cluster/node_processes.ts', import.meta.url).href;

interface Notes {
  directory: string;
  processes: NodeProcesses;
  /** A process that notes that it is a node, and waits. */
  node: (node_id: string) => Promise<ChildProcess>;
  text: (node_id: string) => string;
  write: (node_id: string, text: string) => void;
}

function notes(t: TestContext): Notes {
  const directory = mkdtempSync(join(tmpdir(), 'convoke-notes-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const pathOf = (node_id: string): string => join(directory, `convoke-tag-${node_id}`);
  return {
    directory,
    processes: new NodeProcesses('tag', directory),
    async node(node_id) {
      const program = `
        import { NodeProcesses } from ${JSON.stringify(MODULE)};
        new NodeProcesses('tag', ${JSON.stringify(directory)}).note(${JSON.stringify(node_id)}, Date.now());
        console.log('noted');
        setInterval(() => {}, 1_000);`;
      const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      t.after(() => child.kill('SIGKILL'));
      await once(child.stdout, 'data');
      return child;
    },
    text: (node_id) => readFileSync(pathOf(node_id), 'utf8'),
    write: (node_id, text) => writeFileSync(pathOf(node_id), text),
  };
}

async function kill(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

test('the process of a node has ended when it was killed, and not while it runs or is paused', { skip }, async (t) => {
  const { processes, node } = notes(t);
  const child = await node('a');
  assert.equal(processes.hasEnded('a'), false);
  child.kill('SIGSTOP');
  assert.equal(processes.hasEnded('a'), false);
  await kill(child);
  assert.equal(processes.hasEnded('a'), true);
});

test('another process with the number of a node that was killed is not the node', { skip }, async (t) => {
  const { processes, node, text, write } = notes(t);
  await node('a');
  const living = text('a');
  write(
    'reused',
    living.replace(/\d+$/, (started) => String(Number(started) - 1)),
  );
  assert.equal(processes.hasEnded('reused'), true);
  write('the-same', living);
  assert.equal(processes.hasEnded('the-same'), false);
});

test('what is not of this kernel, or cannot be read, proves nothing', { skip }, async (t) => {
  const { directory, processes, node, text, write } = notes(t);
  await kill(await node('a'));
  const ended = text('a');
  assert.match(ended, /^[\da-f-]{36} pid:\[\d+\] time:\[\d+\] \d+ \d+$/);
  const others = {
    boot: ended.replace(/^./, (first) => (first === '0' ? '1' : '0')),
    'pid-namespace': ended.replace('pid:[', 'pid:[1'),
    'time-namespace': ended.replace('time:[', 'time:[1'),
    cut: ended.slice(0, 60),
    empty: '',
  };
  for (const [node_id, other] of Object.entries(others)) {
    write(node_id, other);
    assert.equal(processes.hasEnded(node_id), false, node_id);
  }
  assert.equal(processes.hasEnded('without-a-note'), false, 'a node of the previous version');
  assert.equal(new NodeProcesses('other', directory).hasEnded('a'), false, 'a node on another database');
  assert.equal(
    new NodeProcesses('tag', join(directory, 'none')).hasEnded('a'),
    false,
    'a system without the directory',
  );
  symlinkSync(join(directory, 'convoke-tag-a'), join(directory, 'convoke-tag-link'));
  assert.equal(processes.hasEnded('link'), false);
  renameSync(join(directory, 'convoke-tag-a'), join(directory, 'elsewhere'));
  assert.equal(processes.hasEnded('x/../../elsewhere'), false);
});

test(
  'a node that left has no note, one that lost its note makes it again, and old notes of killed ones go',
  { skip },
  async (t) => {
    const { directory, processes, node, text } = notes(t);
    await kill(await node('old'));
    await kill(await node('young'));
    await node('living');
    const now = Date.now();
    const old_s = (now - 2 * HOUR) / 1_000;
    for (const node_id of ['old', 'living']) utimesSync(join(directory, `convoke-tag-${node_id}`), old_s, old_s);
    processes.note('me', now);
    assert.deepEqual(readdirSync(directory).toSorted(), ['convoke-tag-living', 'convoke-tag-me', 'convoke-tag-young']);
    rmSync(join(directory, 'convoke-tag-me'));
    processes.note('me', now);
    assert.match(text('me'), new RegExp(` ${process.pid} \\d+$`));
    processes.forget();
    assert.deepEqual(readdirSync(directory).toSorted(), ['convoke-tag-living', 'convoke-tag-young']);
  },
);
