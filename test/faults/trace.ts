/** Reads what strace recorded of a process: was each message on disk before its sender got the response? */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { TestContext } from 'node:test';
import { run } from './run.ts';

/** The system calls that strace records: waits for the disk, writes to the disk, and responses. */
const SYSCALLS = 'fsync,fdatasync,pwrite64,pwritev,write,writev,sendto,sendmsg';
/** How many bytes of a write strace records: a page of the database with its header, to find messages in it. */
const STRING_BYTES_MAX = 8_192;

/** The calls that do not end on a frozen disk. */
const DISK_SYSCALLS = 'fsync,fdatasync,pwrite64';
/** How long a call on the frozen disk takes: longer than any test. */
const FROZEN_S = 600;
const ATTACHED_MS_MAX = 60_000;

export const has_strace = run('strace', '-V').status === 0;

/** The command that runs another command under strace, with all its threads. The process keeps its own id. */
export function straceTo(file: string): string[] {
  return ['strace', '-D', '-f', '-y', '-s', String(STRING_BYTES_MAX), '-e', `trace=${SYSCALLS}`, '-o', file];
}

/** The texts by which a message is found in a page of the database, and in the response that accepted the message. */
export interface Marked {
  /** Text of the message. */
  mark: string;
  message_id: string;
}

export interface Order {
  /** The responses with 201 in the trace. */
  answers: number;
  syncs: number;
  violations: string[];
}

/**
 * Checks that the disk had each message before its 201. Three calls must follow each other: the write of the message to
 * the log file of the database; an fsync of that file, which begins after the end of the write; and the write of the
 * response to the socket.
 */
export function syncedBeforeAnswered(trace: string, messages: readonly Marked[]): Order {
  const lines = callsOf(trace);
  const violations: string[] = [];
  const syncs = lines.filter(({ name, text }) => /^f(data)?sync$/.test(name) && text.includes('-wal>'));
  const writes = lines.filter(({ name, text }) => name.startsWith('pwrite') && text.includes('-wal>'));
  const said = lines.filter(({ text }) => text.includes('HTTP/1.1 201 '));
  let answers = 0;
  for (const { mark, message_id } of messages) {
    const answer = said.find(({ text }) => text.includes(message_id));
    if (answer === undefined) {
      violations.push(`${mark}: its 201 is not in the trace`);
      continue;
    }
    answers++;
    const write = writes.find(({ text }) => text.includes(mark));
    if (write === undefined || write.began > answer.began) {
      violations.push(`${mark}: answered before it was written`);
    } else if (!syncs.some(({ began, ended }) => began > write.ended && ended < answer.began)) {
      violations.push(`${mark}: answered before the disk had it`);
    }
  }
  return { answers, syncs: syncs.length, violations };
}

/**
 * A system call with its arguments, and the lines on which it began and ended. Lines of other threads may come between
 * the two lines.
 */
interface SystemCall {
  name: string;
  text: string;
  began: number;
  ended: number;
}

function callsOf(trace: string): SystemCall[] {
  const calls: SystemCall[] = [];
  const unfinished = new Map<string, SystemCall>();
  for (const [number, line] of trace.split('\n').entries()) {
    const [, thread = '', resumed, name = '', text = ''] =
      /^(\d+)\s+(<\.\.\. )?([a-z0-9_]+)(?:\(| resumed>)(.*)$/s.exec(line) ?? [];
    if (name === '') continue;
    if (resumed !== undefined) {
      const call = unfinished.get(thread);
      if (call !== undefined) Object.assign(call, { text: call.text + text, ended: number });
      unfinished.delete(thread);
      continue;
    }
    const call = { name, text, began: number, ended: number };
    calls.push(call);
    if (line.endsWith('<unfinished ...>')) {
      call.ended = Infinity;
      unfinished.set(thread, call);
    }
  }
  return calls;
}

/** Freezes the disk for a process: until `thaw`, its writes neither end nor fail. */
export async function freezeDisk(t: TestContext, pid: number): Promise<{ thaw: () => Promise<void> }> {
  const inject = `inject=${DISK_SYSCALLS}:delay_enter=${FROZEN_S}s`;
  const [command, ...args] = [
    'strace',
    '-f',
    '-o',
    '/dev/null',
    '-e',
    `trace=${DISK_SYSCALLS}`,
    '-e',
    inject,
    '-p',
    String(pid),
  ];
  const strace = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  t.after(() => strace.kill('SIGTERM'));
  const attached = Promise.withResolvers<void>();
  strace.stderr.setEncoding('utf8').on('data', (text: string) => {
    if (text.includes(' attached')) attached.resolve();
  });
  strace.on('exit', (code) => attached.reject(new Error(`strace ended with ${code}`)));
  attached.promise.catch(() => {});
  const late = setTimeout(() => attached.reject(new Error('strace did not attach')), ATTACHED_MS_MAX);
  await attached.promise.finally(() => clearTimeout(late));
  return {
    async thaw() {
      const ended = once(strace, 'exit');
      strace.kill('SIGTERM');
      await ended;
    },
  };
}
