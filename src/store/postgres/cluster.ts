/** What this node knows of the others, and tells them. */
import { fairShare, LEASE_TRUSTED_MS } from '../../domain/partition.ts';
import { type Change, type ClusterStore, type Lease, type NodeRow, StoreError } from '../store.ts';
import { NODE_COLUMNS, of } from './columns.ts';
import type { Stored } from './accepting.ts';
import { Connection } from './connection.ts';
import { type Database, type Session, statement } from './database.ts';
import { CHANNEL, LANES_OF_RANGES, type Message, messageOf, payloadOf } from './messages_between.ts';

/** How long what was stored for others gathers before they are told: a NOTIFY takes a lock of the whole server. */
const GATHER_MS = 5;
/** More ranges than this are told as one: whoever looks finds some lanes of others among them, which do no harm. */
const RANGES_MAX = 50;
/** How often the listening connection is asked whether it leads anywhere, and how soon it is made anew. */
const PROBE_EVERY_MS = 5_000;
const LISTEN_AGAIN_MS = 200;

const TOLD_BYTES_MAX = 7_000;

const NOTIFY = `SELECT pg_notify('${CHANNEL}', $1)`;

const RENEW = statement(
  'SELECT renew_lease($node_id, $version, $address, $stopping::smallint, $release::smallint[]) AS node_no',
);
const TAKE = statement('SELECT take_partitions($node_no, $wanted)');
const HELD = statement('SELECT partition_no, epoch FROM partitions WHERE node_no = $node_no ORDER BY partition_no');
const NODES = statement(`
  SELECT ${of('n', NODE_COLUMNS).join(', ')}, (SELECT count(*) FROM partitions p WHERE p.node_no = n.node_no) AS partition_count FROM nodes n
  WHERE n.lease_until >= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint OR n.node_no = $node_no
  ORDER BY n.node_no`);
const LEAVE = [
  statement(
    'UPDATE partitions SET node_no = NULL WHERE node_no = (SELECT node_no FROM nodes WHERE node_id = $node_id)',
  ),
  statement('DELETE FROM nodes WHERE node_id = $node_id'),
];

type NodesTable = Omit<NodeRow, 'stopping'> & { stopping: number };

export class Cluster implements ClusterStore {
  readonly #url: string;
  readonly #db: Database;
  readonly #me: string;
  readonly #onChange: (change: Change) => void;
  /** Partitions that are certainly this node's, and until when that can be said. */
  #held = new Set<number>();
  #held_until_ms = -Infinity;
  /** What the last lease said, for those who look whether what others stored concerns this node. */
  #leased: number[] = [];
  #node_id: string | null = null;
  #left = false;
  #renewing: Promise<unknown> = Promise.resolve();

  #stored: Stored[] = [];
  #telling = false;
  #listening: Connection | null = null;
  #probe: NodeJS.Timeout | undefined;
  #closed = false;

  /** @param me a name that no other store has: whoever speaks does not hear himself */
  constructor(url: string, db: Database, me: string, onChange: (change: Change) => void) {
    this.#url = url;
    this.#db = db;
    this.#me = me;
    this.#onChange = onChange;
  }

  // ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────

  renew(node: Pick<NodeRow, 'node_id' | 'version' | 'address' | 'stopping'>, release: number[]): Promise<Lease> {
    const renewed = this.#renewing.then(() => this.#renew(node, release));
    this.#renewing = renewed.catch(() => {});
    return renewed;
  }

  async #renew(
    { node_id, version, address, stopping }: Pick<NodeRow, 'node_id' | 'version' | 'address' | 'stopping'>,
    release: number[],
  ): Promise<Lease> {
    if (this.#left) throw new StoreError('NODE_LEFT', 'this node has left');
    this.#node_id = node_id;
    const asked_ms = performance.now();
    for (const partition_no of release) this.#held.delete(partition_no);
    const values = { node_id, version, address, stopping: stopping ? 1 : 0, release };
    // Each statement is a transaction: what one of them leaves undone the next renewal does.
    const lease = await this.#db.read(async (session) => {
      const { node_no } = (await session.one<{ node_no: number }>(RENEW, values))!;
      let lease = await this.#lease(session, node_no);
      const staying = lease.nodes.filter((other) => !other.stopping).map((other) => other.node_no);
      const wanted = fairShare(node_no, staying) - lease.partitions.length;
      if (wanted > 0) {
        await session.all(TAKE, { node_no, wanted });
        lease = await this.#lease(session, node_no);
      }
      return lease;
    });
    this.#leased = lease.partitions.map(({ partition_no }) => partition_no);
    this.#held = new Set(this.#leased);
    this.#held_until_ms = asked_ms + LEASE_TRUSTED_MS;
    return lease;
  }

  async #lease(session: Session, node_no: number): Promise<Lease> {
    const partitions = await session.all<{ partition_no: number; epoch: number }>(HELD, { node_no });
    return { node_no, partitions, nodes: (await session.all<NodesTable>(NODES, { node_no })).map(nodeRowOf) };
  }

  async leave(): Promise<void> {
    this.#left = true;
    this.#held.clear();
    await this.#renewing;
    const node_id = this.#node_id;
    if (node_id === null) return;
    await this.#db.write(
      async (session) => {
        for (const each of LEAVE) await session.run(each, { node_id });
      },
      async () => {},
    );
  }

  list(): Promise<NodeRow[]> {
    return this.#db.read(async (session) =>
      (await session.all<NodesTable>(NODES, { node_no: null })).map((row) => nodeRowOf(row)),
    );
  }

  // ── what others are told ──────────────────────────────────────────────────────────────────────────────────────────

  async tell(topic: string, text: string): Promise<void> {
    if (Buffer.byteLength(text) > TOLD_BYTES_MAX)
      throw new RangeError(`a text for other nodes has at most ${TOLD_BYTES_MAX} bytes`);
    await this.#notify([{ kind: 'told', topic, text }]);
  }

  /** Writes messages into the transaction of a session: others hear them when it is committed. */
  async notifyWithin(session: Session, messages: Message[]): Promise<void> {
    for (const message of messages) await session.query(NOTIFY, [payloadOf(this.#me, message)]);
  }

  /** This node stored deliveries; those that are not certainly its own it tells of. */
  stored(stored: Stored): void {
    const is_trusted = performance.now() < this.#held_until_ms;
    const others = is_trusted
      ? [...stored.partitions].filter((partition_no) => !this.#held.has(partition_no))
      : [...stored.partitions];
    if (others.length === 0) return;
    this.#stored.push({ ...stored, partitions: new Set(others) });
    if (this.#telling) return;
    this.#telling = true;
    setTimeout(() => void this.#tellOfStored(), GATHER_MS);
  }

  async #tellOfStored(): Promise<void> {
    while (this.#stored.length > 0 && !this.#closed) {
      const stored = this.#stored;
      this.#stored = [];
      const ranges: [number, number][] = stored.map(({ first_no, last_no }) => [first_no, last_no]);
      const partitions = [...new Set(stored.flatMap((each) => [...each.partitions]))];
      const message: Message = { kind: 'deliveries', ranges: joined(ranges), partitions };
      try {
        await this.#notify([message]);
      } catch {
        // They look for themselves, in their slow poll: the connection was lost for longer than a call waits.
      }
    }
    this.#telling = false;
  }

  #notify(messages: Message[]): Promise<void> {
    return this.#db.read((session) => this.notifyWithin(session, messages));
  }

  // ── what others tell ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Listens until it is closed; resolves when it does for the first time. */
  async listen(): Promise<void> {
    const connection = await Connection.open(this.#url);
    connection.onNotification((payload) => void this.#hear(payload));
    connection.onLost(() => void this.#listenAgain());
    await connection.query(`LISTEN ${CHANNEL}`);
    this.#listening = connection;
    if (this.#closed) return connection.destroy();
    this.#probe = setInterval(() => {
      connection.query('SELECT 1', [], PROBE_EVERY_MS).catch(() => {});
    }, PROBE_EVERY_MS);
  }

  async #listenAgain(): Promise<void> {
    clearInterval(this.#probe);
    while (!this.#closed) {
      await new Promise((resolve) => setTimeout(resolve, LISTEN_AGAIN_MS));
      if (this.#closed) return;
      try {
        await this.listen();
        this.#onChange({ kind: 'unsure' });
        return;
      } catch {
        // The database is not back yet.
      }
    }
  }

  async #hear(payload: string): Promise<void> {
    const message = messageOf(payload, this.#me);
    if (message === null) return;
    switch (message.kind) {
      case 'deliveries':
        return this.#hearOfDeliveries(message);
      case 'instance': {
        const { instance_id, lifts, requeued } = message;
        return this.#onChange({ kind: 'instance', instance_id, lifts, requeued });
      }
      case 'keys':
        return this.#onChange({ kind: 'keys' });
      case 'told':
        return this.#onChange({ kind: 'told', topic: message.topic, text: message.text });
    }
  }

  async #hearOfDeliveries({ ranges, partitions }: Extract<Message, { kind: 'deliveries' }>): Promise<void> {
    // What is taken at this moment is read as a whole by whoever takes it.
    const mine = this.#leased.filter((partition_no) => partitions.includes(partition_no));
    if (mine.length === 0) return;
    try {
      const values = [ranges.map(([first]) => first), ranges.map(([, last]) => last), mine];
      const lanes = await this.#db.read(
        async (session) =>
          (await session.query<{ instance_id: string; meeting_id: string }>(LANES_OF_RANGES, values)).rows,
      );
      if (lanes.length > 0) this.#onChange({ kind: 'deliveries', lanes });
    } catch {
      this.#onChange({ kind: 'unsure' });
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#probe);
    await this.#listening?.close().catch(() => {});
  }
}

function joined(ranges: [number, number][]): [number, number][] {
  if (ranges.length <= RANGES_MAX) return ranges;
  return [[Math.min(...ranges.map(([first]) => first)), Math.max(...ranges.map(([, last]) => last))]];
}

function nodeRowOf(row: NodesTable): NodeRow {
  return { ...row, stopping: row.stopping === 1 };
}
