/**
 * Without free file descriptors no client waits for a response that never arrives. When descriptors are free again,
 * everything works.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { until } from '../support/wait.ts';
import { acceptedAgain, type Answered } from './api.ts';
import { assertClean, assertControls, run, surviveUnderLoad, temporaryDirectory } from './run.ts';

const HELD = 64;
const LEFT = 4;
const WITHOUT_MS = 2_000;
/** A client without a response after this time hangs: a slow client gets its response earlier. */
const ANSWER_MS_MAX = 20_000;

const has_prlimit = process.platform === 'linux' && run('prlimit', '--version').status === 0;

function limitDescriptors(pid: number, limit: number): void {
  const { status, stderr } = run('prlimit', '--pid', String(pid), `--nofile=${limit}:`);
  assert.equal(status, 0, String(stderr));
}

/** The limit that leaves so many descriptors free. It applies to the number of a descriptor, not to their count. */
function limitThatLeaves(left: number, pid: number): number {
  const open = new Set(readdirSync(`/proc/${pid}/fd`).map(Number));
  let limit = 0;
  for (let free = 0; free < left; limit++) if (!open.has(limit)) free++;
  return limit;
}

/** The open files that have no name: temporary files that were removed after they were opened. */
function removedFilesOf(pid: number): string[] {
  const { stdout } = run('ls', '-l', `/proc/${pid}/fd`);
  return String(stdout)
    .split('\n')
    .filter((line) => line.endsWith(' (deleted)'));
}

/**
 * Sends a message over a new connection.
 * @returns the status, or how the connection was refused; `hung` when neither happened in time
 */
function sendAnew(url: string, meeting_id: string): Promise<Answered & { how: string }> {
  return new Promise((resolve) => {
    const path = `${url}/api/v1/meetings/${meeting_id}/messages/`;
    const headers = { 'content-type': 'application/json' };
    const sending = request(path, { method: 'POST', agent: false, headers, timeout: ANSWER_MS_MAX }, (answer) => {
      answer.resume();
      resolve({ status: answer.statusCode ?? 0, how: 'answered', body: {} });
    });
    sending.on('timeout', () => {
      resolve({ status: 0, how: 'hung', body: {} });
      sending.destroy();
    });
    sending.on('error', (error: NodeJS.ErrnoException) => resolve({ status: 0, how: error.code ?? '', body: {} }));
    sending.end('{"message":{}}');
  });
}

test(
  'no file descriptors left: nobody hangs, nothing lost, back by itself',
  { skip: has_prlimit ? false : 'prlimit is not installed' },
  async (t) => {
    const data = await temporaryDirectory(t);
    const record = await surviveUnderLoad(t, data, async ({ node, url, speakers, machines }) => {
      await until(
        'load',
        () => speakers.statuses.get(201) ?? 0,
        (count) => count >= 100,
      );
      limitDescriptors(node.pid, limitThatLeaves(LEFT, node.pid));
      const { hostname, port } = new URL(url);
      let turned_away = 0;
      const held: Socket[] = [];
      for (let i = 0; i < HELD; i++) {
        const socket = connect(Number(port), hostname).on('error', () => {});
        socket.on('close', () => turned_away++);
        held.push(socket);
        await once(socket, 'connect');
      }
      const ways = new Map<string, number>();
      const from_ms = performance.now();
      while (performance.now() - from_ms < WITHOUT_MS) {
        const { how, status } = await sendAnew(url, 'elsewhere');
        const way = how === 'answered' ? String(status) : how;
        ways.set(way, (ways.get(way) ?? 0) + 1);
        await pause(20);
      }
      t.diagnostic(`newcomers: ${JSON.stringify(Object.fromEntries(ways))}`);
      assert.ok(node.isAlive, node.log);
      assert.equal(ways.get('hung'), undefined);
      // The control: no descriptor was left, so the service turned clients away. It accepts a client only when an idle
      // connection ends.
      t.diagnostic(`turned away of ${HELD} that hold on to a connection: ${turned_away}`);
      assert.ok(turned_away > 0, 'there were descriptors left');

      for (const socket of held) socket.destroy();
      const received = (await machines.received()).length;
      const accepted_ms = await acceptedAgain(url, () => sendAnew(url, 'elsewhere'));
      await until(
        'pushes',
        () => machines.received(),
        (pushes) => pushes.length > received,
      );
      t.diagnostic(`newcomers are accepted again after ${Math.round(accepted_ms)} ms`);
      t.diagnostic(`senders: ${JSON.stringify(Object.fromEntries(speakers.statuses))}`);
      // To store a message needs no further descriptor. Otherwise storing would fail, or take the descriptor with which
      // the service refuses clients.
      assert.deepEqual([...speakers.statuses.keys()], [201]);
      assert.deepEqual(removedFilesOf(node.pid), []);
    });
    assertClean(t, record);
    assertControls(record);
  },
);
