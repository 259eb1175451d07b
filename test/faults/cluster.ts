/**
 * Nodes on one PostgreSQL, each in its own process. Machines get pushes from all nodes, and senders send to all nodes.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { ask, deliveriesByState, enroll, history, nothingPending } from './api.ts';
import type { Ending, Record } from './checker.ts';
import { Machines } from './machines.ts';
import { NodeProcess } from './node_process.ts';
import { temporaryDirectory } from './run.ts';
import { Speakers } from './speakers.ts';

/** The machines: enough for every node to deliver to some of them. */
const MACHINES = [...Array.from({ length: 11 }, (_, k) => `machine-${k}`), 'slow'];
const MEMBERS = new Map(
  ['alpha', 'beta', 'gamma'].map((meeting_id, k) => [meeting_id, MACHINES.filter((_, i) => i % 3 !== k)]),
);
/**
 * The pause between two sends. It keeps the load small, so that other nodes deliver what a lost node left in less time
 * than its lease, on a busy machine too.
 */
const PAUSE_MS = 50;
/** How long a takeover may take. A lease lasts 15 s; the rest is for busy machines. */
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

  /** Starts a node for each of these database URLs, waits until the nodes share the partitions, and starts senders. */
  static async start(t: TestContext, database_urls: string[]): Promise<Nodes> {
    const machines = await Machines.start(t);
    const data = await temporaryDirectory(t);
    const [first_url, ...others] = database_urls as [string, ...string[]];
    const first = NodeProcess.serveOn(t, first_url, data, { machines });
    // The first node makes the key that all nodes use.
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

  /** The first node. The faults never concern it. */
  get url(): string {
    return this.urls[0] as string;
  }

  /** Waits until this many nodes share all partitions; returns how long that took. */
  shared(nodes: number): Promise<number> {
    return balanced(this.url, nodes);
  }

  /** Waits until everything is delivered, and collects the records of senders, machines and the service. */
  async record(...endings: Ending[]): Promise<Record> {
    await this.speakers.end();
    await nothingPending(this.url);
    return {
      sent: this.speakers.sent,
      received: await this.machines.received(),
      stored: await history(this.url, MEMBERS.keys()),
      members: MEMBERS,
      deliveries: await deliveriesByState(this.url),
      endings,
    };
  }
}

/** Waits until this many nodes share all partitions; returns how long that took. */
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
