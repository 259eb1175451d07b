/** What this node knows of the others, and tells them. */
import { fairShare, LEASE_TRUSTED_MS, partitionOf, PARTITIONS } from '../../domain/partition.ts';
import {
  type Accepted,
  type Change,
  type ClusterStore,
  type Lease,
  type NodeRow,
  StoreError,
  type ToldLane,
} from '../store.ts';
import { NODE_COLUMNS, of } from './columns.ts';
import { Connection } from './connection.ts';
import { type Database, type Session, statement } from './database.ts';
import { CHANNEL, type Message, messageOf, payloadOf, type Told, tellingOf } from './messages_between.ts';

/** How long what was stored for others gathers before they are told: a NOTIFY takes a lock of the whole server. */
const GATHER_MS = 5;
/** How often the listening connection is asked whether it leads anywhere, and how soon it is made anew. */
const PROBE_EVERY_MS = 5_000;
const LISTEN_AGAIN_MS = 200;

const TOLD_BYTES_MAX = 7_000;

const NOTIFY = `SELECT pg_notify('${CHANNEL}', payload) FROM unnest($1::text[]) AS payload`;

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
  #leased = new Set<number>();
  #node_count = 1;
  #node_id: string | null = null;
  #left = false;
  #renewing: Promise<unknown> = Promise.resolve();

  /** Lanes of others that deliveries came into, by meeting. */
  #stored = new Map<string, Told>();
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
    this.#leased = new Set(lease.partitions.map(({ partition_no }) => partition_no));
    this.#held = new Set(this.#leased);
    this.#node_count = Math.max(1, lease.nodes.length);
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

  /** How many nodes there are, this one included, as far as it knows. */
  get node_count(): number {
    return this.#node_count;
  }

  // ── what others are told ──────────────────────────────────────────────────────────────────────────────────────────

  async tell(topic: string, text: string): Promise<void> {
    if (Buffer.byteLength(text) > TOLD_BYTES_MAX)
      throw new RangeError(`a text for other nodes has at most ${TOLD_BYTES_MAX} bytes`);
    await this.#notify([{ kind: 'told', topic, text }]);
  }

  /** Writes messages into the transaction of a session: others hear them when it is committed. */
  async notifyWithin(session: Session, messages: Message[]): Promise<void> {
    if (messages.length > 0) await session.query(NOTIFY, [messages.map((message) => payloadOf(this.#me, message))]);
  }

  /** This node stored messages; of the deliveries that are not certainly its own it tells. */
  stored(accepted: Accepted[]): void {
    const is_trusted = performance.now() < this.#held_until_ms;
    if (is_trusted && this.#held.size === PARTITIONS) return;
    for (const each of accepted) {
      if (each.kind !== 'accepted' || each.deliveries.length === 0) continue;
      const { meeting_id } = each.message;
      const others = each.deliveries.filter(
        ({ instance_id }) => !is_trusted || !this.#held.has(partitionOf(instance_id)),
      );
      if (others.length === 0) continue;
      let told = this.#stored.get(meeting_id);
      if (told === undefined) this.#stored.set(meeting_id, (told = { count: 0, instance_ids: new Set() }));
      told.count++;
      for (const { instance_id } of others) told.instance_ids.add(instance_id);
    }
    if (this.#telling || this.#stored.size === 0) return;
    this.#telling = true;
    setTimeout(() => void this.#tellOfStored(), GATHER_MS);
  }

  async #tellOfStored(): Promise<void> {
    while (this.#stored.size > 0 && !this.#closed) {
      const stored = this.#stored;
      this.#stored = new Map();
      try {
        await this.#notify(tellingOf(stored));
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
    connection.onNotification((payload) => this.#hear(payload));
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

  #hear(payload: string): void {
    const message = messageOf(payload, this.#me);
    if (message === null) return;
    switch (message.kind) {
      case 'deliveries':
        return this.#hearOfDeliveries(message.lanes);
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

  #hearOfDeliveries(told: Extract<Message, { kind: 'deliveries' }>['lanes']): void {
    const lanes: ToldLane[] = [];
    for (const [meeting_id, count, ...instance_ids] of told) {
      for (const instance_id of instance_ids) {
        // What is taken at this moment is read as a whole by whoever takes it.
        if (this.#leased.has(partitionOf(instance_id))) lanes.push({ instance_id, meeting_id, count });
      }
    }
    if (lanes.length > 0) this.#onChange({ kind: 'deliveries', lanes });
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#probe);
    await this.#listening?.close().catch(() => {});
  }
}

function nodeRowOf(row: NodesTable): NodeRow {
  return { ...row, stopping: row.stopping === 1 };
}
