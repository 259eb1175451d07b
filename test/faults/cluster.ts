/** Nodes on one PostgreSQL, as processes of their own, with machines that hear and people who speak to all of them. */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { ask, deliveriesByState, enroll, history, nothingPending } from './api.ts';
import type { Ending, Record } from './checker.ts';
import { Machines } from './machines.ts';
import { NodeProcess } from './node_process.ts';
import { temporaryDirectory } from './run.ts';
import { Speakers } from './speakers.ts';

/** Enough that every node has some of them. */
const MACHINES = [...Array.from({ length: 11 }, (_, k) => `machine-${k}`), 'slow'];
const MEMBERS = new Map(
  ['alpha', 'beta', 'gamma'].map((meeting_id, k) => [meeting_id, MACHINES.filter((_, i) => i % 3 !== k)]),
);
/** What waits for a node that is gone should not take longer than its lease to be delivered, on a busy machine either. */
const PAUSE_MS = 50;
/** Far longer than the 15 s of a lease, so that a busy machine fails no test. */
const TAKEN_OVER_MS_MAX = 60_000;

interface NodeOfList {
  state: string;
  partitions: number;
}

export class Nodes {
  readonly processes: NodeProcess[];
  readonly urls: string[];
  readonly machines: Machines;
  readonly speakers: Speakers;

  private constructor(processes: NodeProcess[], urls: string[], machines: Machines) {
    this.processes = processes;
    this.urls = urls;
    this.machines = machines;
    this.speakers = new Speakers(this.url, MEMBERS.keys());
    this.speakers.urls = urls;
    this.speakers.pause_ms = PAUSE_MS;
  }

  /** Starts a node on each of these addresses of one database, waits until they share, and lets people speak. */
  static async start(t: TestContext, database_urls: string[]): Promise<Nodes> {
    const machines = await Machines.start(t);
    const data = await temporaryDirectory(t);
    const [first_url, ...others] = database_urls as [string, ...string[]];
    const first = NodeProcess.serveOn(t, first_url, data, { machines });
    // It makes the key that all of them use.
    const url = await first.ready;
    const processes = [
      first,
      ...others.map((database_url) => NodeProcess.serveOn(t, database_url, data, { machines })),
    ];
    const urls = await Promise.all(processes.map((node) => node.ready));
    await balanced(url, processes.length);
    await enroll(url, machines.origin, MEMBERS);
    return new Nodes(processes, urls, machines);
  }

  /** Of the first node, to which nothing is done. */
  get url(): string {
    return this.urls[0] as string;
  }

  /** Waits until so many nodes share all partitions; answers how long that took. */
  shared(nodes: number): Promise<number> {
    return balanced(this.url, nodes);
  }

  /** Lets everything be delivered, and collects what everybody has to say. */
  async record(...endings: Ending[]): Promise<Record> {
    await this.speakers.end();
    await nothingPending(this.url);
    return {
      sent: this.speakers.sent,
      heard: await this.machines.heard(),
      stored: await history(this.url, MEMBERS.keys()),
      members: MEMBERS,
      deliveries: await deliveriesByState(this.url),
      endings,
    };
  }
}

/** Waits until so many nodes share all partitions; answers how long that took. */
export async function balanced(url: string, nodes: number): Promise<number> {
  const from_ms = performance.now();
  const wanted = Array.from({ length: nodes }, (_, k) => Math.floor(64 / nodes) + (k < 64 % nodes ? 1 : 0)).join();
  for (;;) {
    const listed = (await ask(url, 'GET', '/api/v1/nodes/')).body['data'] as NodeOfList[];
    const held = listed.filter(({ state }) => state === 'up').map(({ partitions }) => partitions);
    if (held.toSorted((a, b) => b - a).join() === wanted) return performance.now() - from_ms;
    assert.ok(performance.now() - from_ms < TAKEN_OVER_MS_MAX, `still ${JSON.stringify(listed)}`);
    await pause(100);
  }
}
