/** Finds out which nodes have ended, as far as this host can prove that the process of a node has ended. */
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

/**
 * A directory in the memory of the kernel: no other machine has its files, and no file outlasts the kernel. Only Linux
 * has this directory.
 */
const NOTES = '/dev/shm';
/** A node id of this form cannot lead out of the directory of the notes. */
const NODE_ID = /^[\w-][\w.-]*$/;
/** When a process has ended, its note is removed if the node has not renewed the note for this long. */
const FORGOTTEN_AFTER_MS = 3_600_000;
/** The signal that asks whether a process exists, and does nothing to it. */
const NO_SIGNAL = 0;

/**
 * A node leaves a note of its process on its host. Another node on this host reads the note, and sees whether the
 * process has ended. Then the other node need not wait until the lease of the ended node ends. Both nodes must be of
 * the same user, and on the same running kernel.
 *
 * The note is a file, and its presence proves that the node ran on this kernel. The boot id alone would not prove that:
 * machines that were cloned while they ran have the same boot id. The note has the pid, and the namespaces in which the
 * pid is valid. It also has the time at which the process started, because the kernel may give the pid to another
 * process later. A paused process or a zombie still exists, so it has not ended. When a part is missing or cannot be
 * read, nothing is proven, and the lease decides.
 */
export class NodeProcesses {
  readonly #tag: string;
  readonly #directory: string;
  readonly #here: string | null;
  /** The path of the note of this process; null while there is no note. */
  #noted: string | null = null;

  /** @param tag the tag of the database, so that the notes of nodes on another database are ignored */
  constructor(tag: string, directory = NOTES) {
    this.#tag = tag;
    this.#directory = directory;
    this.#here = kernelHere();
  }

  /**
   * Writes the note that this process is the node; a later call only renews the time of the note. Call it before other
   * nodes can see this node, and with each renewal of the lease.
   */
  note(node_id: string, wall_ms: number): void {
    const path = this.#pathOf(node_id);
    const started = startOf(process.pid);
    if (path === null || this.#here === null || started === null) return;
    const now_s = wall_ms / 1_000;
    try {
      if (this.#noted === null) this.#removeOld(wall_ms - FORGOTTEN_AFTER_MS);
      else return utimesSync(this.#noted, now_s, now_s);
    } catch {
      // Somebody removed the file, or the directory cannot be read. The code below tries to write the note.
    }
    try {
      rmSync(path, { force: true });
      writeFileSync(path, `${this.#here} ${process.pid} ${started}`, { flag: 'wx', mode: 0o600 });
      this.#noted = path;
    } catch {
      // Without a note the lease decides.
    }
  }

  /** Removes the note of this process, because the node has left the cluster. */
  forget(): void {
    if (this.#noted !== null) rmSync(this.#noted, { force: true });
    this.#noted = null;
  }

  /** Whether it is proven that the process of a node has ended. */
  hasEnded(node_id: string): boolean {
    const path = this.#pathOf(node_id);
    return path !== null && this.#isOfEnded(path);
  }

  #isOfEnded(path: string): boolean {
    const note = this.#here === null ? null : ownText(path);
    if (note === null) return false;
    const [, here, pid, started] = /^(.+) (\d+) (\d+)$/.exec(note) ?? [];
    return here === this.#here && hasEnded(Number(pid), started as string);
  }

  #pathOf(node_id: string): string | null {
    return NODE_ID.test(node_id) ? join(this.#directory, `convoke-${this.#tag}-${node_id}`) : null;
  }

  /** Removes the notes of killed nodes that were not renewed since `before_ms`. */
  #removeOld(before_ms: number): void {
    for (const name of readdirSync(this.#directory)) {
      const path = join(this.#directory, name);
      if (!name.startsWith('convoke-') || !this.#isOfEnded(path)) continue;
      if (statSync(path).mtimeMs < before_ms) rmSync(path, { force: true });
    }
  }
}

/**
 * Identifies the running kernel (by its boot id), and the pid namespace and the time namespace of this process: its pid
 * and its start time are valid only there. Null on a system without these, and when /proc does not show this process.
 */
function kernelHere(): string | null {
  try {
    const boot_id = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    // /proc may belong to another pid namespace, in which this process has another pid.
    if (Number(readlinkSync('/proc/self')) !== process.pid) return null;
    return `${boot_id} ${readlinkSync('/proc/self/ns/pid')} ${readlinkSync('/proc/self/ns/time')}`;
  } catch {
    return null;
  }
}

/** When a process started, in ticks since the boot (field 22 of proc_pid_stat(5)); null when that cannot be read. */
function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The name of the program comes second, in parentheses, and may contain any character.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null;
  } catch {
    return null;
  }
}

function hasEnded(pid: number, started: string): boolean {
  try {
    process.kill(pid, NO_SIGNAL);
  } catch (error) {
    // ESRCH: there is no such process. A process that this user may not ask (EPERM) exists.
    return error instanceof Error && 'code' in error && error.code === 'ESRCH';
  }
  const present = startOf(pid);
  return present !== null && present !== started;
}

/**
 * The text of a file that this user owns; null for anything else, because other users may write into the directory of
 * the notes too.
 */
function ownText(path: string): string | null {
  let file: number | null = null;
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    const { uid } = fstatSync(file);
    return uid === process.getuid?.() ? readFileSync(file, 'latin1') : null;
  } catch {
    return null;
  } finally {
    if (file !== null) closeSync(file);
  }
}
