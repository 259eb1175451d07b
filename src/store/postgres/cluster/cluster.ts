/** The leases of this node, and its notifications to and from other nodes. */
import { fairShare } from '../../../domain/partition.ts';
import { BROADCAST_BYTES_MAX, type ClusterStore, type Lease, type NodeRow } from '../../contract/cluster.ts';
import { wallNow } from '../../../wall_clock.ts';
import { StoreError } from '../../store_error.ts';
import type { NotifySource } from '../writers/message_writer.ts';
import { NODE_COLUMNS, of } from '../columns.ts';
import { Connection, isLockTimeout } from '../connection/connection.ts';
import { type Database, type Session, type Statement, statement } from '../database.ts';
import { ChangeReader } from './change_reader.ts';
import { REMOVAL } from '../locks.ts';
import { MIGRATIONS, SHORT_ATTEMPTS_STEPS } from '../migrations.ts';
import { DedicatedConnection } from '../connection/dedicated_connection.ts';
import { CHANNEL, type Message, type NodeMessages } from './notifications.ts';
import { NodeProcesses } from './node_processes.ts';
import type { RawChange } from './stored_rows.ts';
import type { OwnWork } from '../../thread/own_work.ts';
import { WatchedNodes } from './watched_nodes.ts';

/** How often the listening connection is tested, and how soon after its loss a new connection is opened. */
const PROBE_EVERY_MS = 5_000;
const LISTEN_AGAIN_MS = 200;

/**
 * Nodes of the previous version sign nothing. While there is such a node, and for UNSIGNED_HEARD_MS afterwards, this
 * node accepts unsigned notifications that only say where to read. When one comes at another time, this node looks for
 * a node of the previous version, at most once in LOOK_FOR_UNSIGNED_MS.
 */
const UNSIGNED_HEARD_MS = 60_000;
const LOOK_FOR_UNSIGNED_MS = 1_000;

const NOTIFY = `SELECT pg_notify('${CHANNEL}', payload) FROM unnest($1::text[]) AS payload`;

const RENEW = statement(
  'SELECT renew_lease_3($node_id, $version, $address, $stopping::smallint, $release::smallint[], $steps) AS node_no',
);
const TAKE = statement('SELECT take_partitions_2($node_no, $wanted, $gone_nos::bigint[], $gone_seen_ats::bigint[])');
/**
 * Waits until the accepts that run now have stored their messages. One of them may be of a process that was killed a
 * moment ago. If that accept looked for other nodes before this node joined, it does not notify this node. So this node
 * takes the partitions, and reads them, only after that accept. Accepts share this lock until they are committed.
 */
const AWAIT_ACCEPTS = statement(`SELECT pg_advisory_xact_lock(${REMOVAL})`);
const HELD = statement('SELECT partition_no, epoch FROM partitions WHERE node_no = $node_no ORDER BY partition_no');
const NODES = statement(`
  SELECT ${of('n', NODE_COLUMNS).join(', ')}, (SELECT count(*) FROM partitions p WHERE p.node_no = n.node_no) AS partition_count, n.steps_known,
    n.address_signature, n.key_ids, n.lease_until < floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS is_lapsed
  FROM nodes n ORDER BY n.node_no`);
const SIGN_ADDRESS = statement(
  'UPDATE nodes SET address_signature = $signature, key_ids = $key_ids WHERE node_no = $node_no',
);
const HOLDERS = statement(`
  SELECT n.node_id, n.address, n.address_signature,
    (SELECT json_agg(p.partition_no)::text FROM partitions p WHERE p.node_no = n.node_no) AS partition_nos
  FROM nodes n`);
const LEAVE = [
  statement(
    'UPDATE partitions SET node_no = NULL WHERE node_no = (SELECT node_no FROM nodes WHERE node_id = $node_id)',
  ),
  statement('DELETE FROM nodes WHERE node_id = $node_id'),
];

const ANY_UNSIGNED = statement(`
  SELECT 1 FROM nodes WHERE signs = 0 AND lease_until >= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint LIMIT 1`);

/** The purposes for which this node signs. */
const TEXT = 'text';
const addressOf = (node_id: string): string => `address:${node_id}`;

type HolderRow = Pick<NodeRow, 'node_id' | 'address'> & {
  address_signature: string | null;
  /** The partitions of the node, as JSON; null when it holds none. */
  partition_nos: string | null;
};

type NodesTable = Omit<NodeRow, 'stopping'> & {
  stopping: number;
  is_lapsed: boolean;
  steps_known: number;
  address_signature: string | null;
  key_ids: string | null;
};

export class Cluster implements ClusterStore, NotifySource {
  readonly #url: string;
  readonly #db: Database;
  /** For renewals of the lease, so that no long call holds them up. */
  readonly #lease_db: Database;
  readonly #messages: NodeMessages;
  readonly #onChange: (raw: RawChange) => void;
  readonly #onFailed: (work: OwnWork, error: unknown) => void;
  /** The partitions that the last renewal returned. This node needs the deliveries that other nodes store in them. */
  #leased: number[] = [];
  readonly #change_reader: ChangeReader;
  #node_id: string | null = null;
  #left = false;
  #renewing: Promise<unknown> = Promise.resolve();

  #listening: Connection | null = null;
  #probe: NodeJS.Timeout | undefined;
  #closed = false;
  readonly #watched: WatchedNodes;
  readonly #processes: NodeProcesses;
  #reads_short_attempts = false;
  #unsigned_until = 0;
  #look_for_unsigned_at = 0;

  /**
   * @param onFailed called when work failed that no call waits for; it is tried again
   * @param now_ms reads a clock that nobody can set
   */
  constructor(
    url: string,
    db: Database,
    lease_db: Database,
    tag: string,
    messages: NodeMessages,
    onChange: (raw: RawChange) => void,
    onFailed: (work: OwnWork, error: unknown) => void,
    now_ms: () => number,
  ) {
    this.#url = url;
    this.#db = db;
    this.#lease_db = lease_db;
    this.#messages = messages;
    this.#onChange = onChange;
    this.#onFailed = onFailed;
    this.#watched = new WatchedNodes(now_ms);
    this.#processes = new NodeProcesses(tag);
    this.#change_reader = new ChangeReader(
      new DedicatedConnection(url),
      tag,
      () => this.#leased,
      onChange,
      (error) => onFailed('read_changes', error),
    );
  }

  /** Whether every node reads attempts in their short form; false until this node has a lease. */
  get readsShortAttempts(): boolean {
    return this.#reads_short_attempts;
  }

  get node_id(): string | null {
    return this.#node_id;
  }

  signedName(): string {
    return this.#messages.signedName();
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
    this.#processes.note(node_id, wallNow());
    const values = { node_id, version, address, stopping: stopping ? 1 : 0, release: [], steps: MIGRATIONS.length };
    // Each statement is a transaction. If this renewal is interrupted, the next renewal does the rest.
    const lease = await this.#lease_db.read(async (session) => {
      const { node_no } = (await session.one<{ node_no: number }>(RENEW, values))!;
      if (release.length > 0) await unlessLocked(session, RENEW, { ...values, release });
      const rows = await session.all<NodesTable>(NODES);
      const own = rows.find((row) => row.node_no === node_no) as NodesTable;
      await this.#signAddress(session, own);
      this.#watched.look(rows);
      const { gone = [], living = [] } = Object.groupBy(rows, (row) =>
        this.#isGone(row, node_no) ? 'gone' : 'living',
      );
      this.#reads_short_attempts = living.every(({ steps_known }) => steps_known >= SHORT_ATTEMPTS_STEPS);
      const staying = living.filter((other) => other.stopping === 0).map((other) => other.node_no);
      let partitions = await session.all<Lease['partitions'][number]>(HELD, { node_no });
      const wanted = fairShare(node_no, staying) - partitions.length;
      if (wanted > 0) {
        const lapsed = gone.every((row) => this.#watched.isGone(row));
        if (lapsed || (await unlessLocked(session, AWAIT_ACCEPTS, {}))) {
          const gone_nos = gone.map((other) => other.node_no);
          const gone_seen_ats = gone.map(({ seen_at }) => seen_at);
          await unlessLocked(session, TAKE, { node_no, wanted, gone_nos, gone_seen_ats });
        }
        partitions = await session.all(HELD, { node_no });
      }
      await this.#lookForUnsigned(session);
      return { node_no, renewed_at: own.seen_at, partitions, nodes: living.map(nodeRowOf) };
    });
    this.#leased = lease.partitions.map(({ partition_no }) => partition_no);
    return lease;
  }

  /**
   * Other nodes send requests to a node only at an address that the node has signed. Looks at the stored signature each
   * time, because the database may have been restored to an earlier state. Names the data keys of this node as well: the
   * key is changed only when every node has the new one (encryption.ts).
   */
  async #signAddress(session: Session, { node_no, node_id, address, ...row }: NodesTable): Promise<void> {
    const signature = this.#messages.signatureOf(addressOf(node_id), address);
    const { key_ids } = this.#messages;
    if (row.address_signature === signature && row.key_ids === key_ids) return;
    await session.run(SIGN_ADDRESS, { node_no, signature, key_ids });
  }

  async addressesOfHolders(): Promise<Map<number, string>> {
    const addresses = new Map<number, string>();
    const holders = await this.#db.read((session) => session.all<HolderRow>(HOLDERS));
    for (const { node_id, address, address_signature, partition_nos } of holders) {
      if (!this.#messages.isSignatureOf(address_signature ?? '', addressOf(node_id), address)) continue;
      for (const partition_no of JSON.parse(partition_nos ?? '[]') as number[]) addresses.set(partition_no, address);
    }
    return addresses;
  }

  /** Nodes of the previous version sign nothing. */
  async hasOlderNode(): Promise<boolean> {
    return (await this.#db.read((session) => session.one(ANY_UNSIGNED))) !== undefined;
  }

  async sign(text: string): Promise<string> {
    return this.#messages.signatureOf(TEXT, text);
  }

  async isSigned(text: string, signature: string): Promise<boolean> {
    return this.#messages.isSignatureOf(signature, TEXT, text);
  }

  /** Only another node can be gone, because this node is running. */
  #isGone(row: NodesTable, my_node_no: number | null): boolean {
    return row.node_no !== my_node_no && (this.#watched.isGone(row) || this.#processes.hasEnded(row.node_id));
  }

  async leave(): Promise<void> {
    this.#left = true;
    await this.#renewing;
    const node_id = this.#node_id;
    if (node_id === null) return;
    await this.#db.write(
      async (session) => {
        for (const each of LEAVE) await session.run(each, { node_id });
      },
      async () => {},
    );
    this.#processes.forget();
  }

  list(): Promise<NodeRow[]> {
    return this.#db.read(async (session) =>
      (await session.all<NodesTable>(NODES)).filter((row) => !this.#isGone(row, null)).map(nodeRowOf),
    );
  }

  /** Resolves when all announced batches of other nodes are read, or after `ms_max`. */
  caughtUp(ms_max: number): Promise<void> {
    return this.#change_reader.caughtUp(ms_max);
  }

  // ── notifications to others ──────────────────────────────────────────────────────────────────────────────────────

  async broadcast(topic: string, text: string): Promise<void> {
    if (Buffer.byteLength(text) > BROADCAST_BYTES_MAX)
      throw new RangeError(`a text for other nodes has at most ${BROADCAST_BYTES_MAX} bytes`);
    await this.#notify([{ kind: 'broadcast', topic, text }]);
  }

  /**
   * Writes notifications into the transaction of a session: other nodes receive them when the transaction is committed.
   */
  async notifyWithin(session: Session, messages: Message[]): Promise<void> {
    if (messages.length > 0)
      await session.query(NOTIFY, [messages.flatMap((message) => this.#messages.payloadsOf(message))]);
  }

  #notify(messages: Message[]): Promise<void> {
    return this.#db.read((session) => this.notifyWithin(session, messages));
  }

  // ── notifications from others ────────────────────────────────────────────────────────────────────────────────────

  /** Listens until the cluster is closed; resolves when it listens for the first time. */
  async listen(): Promise<void> {
    const connection = await Connection.open(this.#url);
    connection.onNotification((payload) => this.#onNotification(payload));
    try {
      await connection.query(`LISTEN ${CHANNEL}`);
    } catch (error) {
      connection.destroy();
      throw error;
    }
    if (this.#closed) return connection.destroy();
    this.#listening = connection;
    // When the connection is lost before this line, the caller opens it again, so #listenAgain must not do that too.
    connection.onLost(() => void this.#listenAgain());
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
        this.#onChange({ kind: 'resync' });
        return;
      } catch (error) {
        // Mostly the database is still unreachable.
        this.#onFailed('listen', error);
      }
    }
  }

  #onNotification(payload: string): void {
    const received = this.#messages.messageOf(payload);
    if (received === null || (received.unsigned && !this.#acceptsUnsigned())) return;
    const { message } = received;
    switch (message.kind) {
      case 'stored':
        // Reads only deliveries in the partitions that this node holds now. When this node takes a partition later, it
        // reads all of that partition, so it misses nothing.
        return this.#change_reader.onBatchStored(message);
      case 'instance': {
        const { instance_id, lifts, requeued } = message;
        return this.#onChange({ kind: 'instance', instance_id, resets_backoff: lifts, requeued });
      }
      case 'meeting':
        return this.#onChange({ kind: 'meeting', meeting_id: message.meeting_id });
      case 'keys':
        return this.#onChange({ kind: 'keys' });
      case 'broadcast':
        return this.#onChange({ kind: 'broadcast', topic: message.topic, text: message.text });
    }
  }

  /**
   * Whether to accept a notification without a signature, which anybody may have sent: only while there is a node that
   * does not sign.
   */
  #acceptsUnsigned(): boolean {
    const now = performance.now();
    if (now < this.#unsigned_until) return true;
    if (now >= this.#look_for_unsigned_at) {
      this.#look_for_unsigned_at = now + LOOK_FOR_UNSIGNED_MS;
      this.#db
        .read(async (session) => {
          if (await this.#lookForUnsigned(session)) this.#onChange({ kind: 'resync' });
        })
        .catch(() => {});
    }
    return false;
  }

  async #lookForUnsigned(session: Session): Promise<boolean> {
    const is_there = (await session.one(ANY_UNSIGNED)) !== undefined;
    if (is_there) this.#unsigned_until = performance.now() + UNSIGNED_HEARD_MS;
    return is_there;
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#probe);
    await this.#change_reader.close().catch(() => {});
    await this.#listening?.close().catch(() => {});
  }
}

/**
 * A step of releasing or taking partitions. Waits at most a second for a settlement or an accept that takes long, because
 * others wait behind this step: the renewals of all nodes, or all accepts. A later renewal does what this one did not.
 *
 * @returns whether the step is done
 */
async function unlessLocked(session: Session, change: Statement, values: Record<string, unknown>): Promise<boolean> {
  await session.query("SET lock_timeout = '1s'");
  try {
    await session.all(change, values);
    return true;
  } catch (error) {
    if (!isLockTimeout(error)) throw error;
    return false;
  } finally {
    // Fails only when the connection is lost, and then the next renewal opens another one.
    await session.query('SET lock_timeout = 0').catch(() => {});
  }
}

function nodeRowOf(row: NodesTable): NodeRow {
  const { is_lapsed: _, address_signature: __, ...rest } = row;
  return { ...rest, stopping: row.stopping === 1 };
}
