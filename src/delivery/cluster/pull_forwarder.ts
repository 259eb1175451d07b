import type { ClientRequest, IncomingMessage } from 'node:http';
import https from 'node:https';
import { partitionOf } from '../../domain/partition.ts';
import { http } from '../../node_http.ts';
import type { ClusterStore } from '../../store/contract/cluster.ts';
import type { Clock, Timer } from '../clock.ts';

/** The header that marks a forwarded request, so that the node that receives the request does not forward it again. */
export const FORWARDED_HEADER = 'convoke-forwarded';

/**
 * How long the other node may take to accept a connection, and how long after the end of the pull its response may
 * still arrive.
 */
const CONNECT_MS = 2_000;
const ANSWER_MS = 10_000;
/**
 * How long a node remembers which nodes hold the partitions. After a response other than 200, the addresses are read
 * again. One read gets the addresses of all partitions: with a read for each partition, the reads took a third of the
 * processor time of forwarded pulls.
 */
const ADDRESSES_MS = 1_000;
/** How long a node uses one stamp. A stamp is a signed time, and marks the pulls that the node forwards. */
const STAMP_MS = 10_000;
/**
 * How much earlier or later than this node's clock the time in a stamp may be. The two times differ because the stamp
 * has some age, and because the clocks of two nodes differ.
 */
const CLOCKS_APART_MS = 60_000;
/** How many genuine stamps a node remembers at most. Each node makes six stamps a minute. */
const STAMPS_KNOWN_MAX = 1_000;
/** The beginning of the text that a node signs. The time follows it. */
const STAMP_PREFIX = 'forwards:';

/** A pull as a client sent it to a node that does not deliver to its instance. */
export interface ForwardedPull {
  instance_id: string;
  /** The body of the request, as JSON. */
  body: string;
  /** The client's own credentials, and the headers that describe the client. */
  headers: Record<string, string>;
  /** The address of the client; null when it is not known. */
  address: string | null;
  wait_ms: number;
}

export interface PullForwarderParts {
  cluster: Pick<ClusterStore, 'addressesOfHolders' | 'sign' | 'isSigned'>;
  clock: Clock;
}

/**
 * Forwards a pull to the node that delivers to its instance, with the credentials of the client. The request goes only
 * to one path, at an address that a node of this cluster has signed. The operator of that node declares the address
 * (CONVOKE_ADVERTISED_URL).
 */
export class PullForwarder {
  readonly #cluster: PullForwarderParts['cluster'];
  readonly #clock: Clock;
  readonly #agents = {
    'http:': new http.Agent({ keepAlive: true }),
    'https:': new https.Agent({ keepAlive: true }),
  };
  readonly #in_flight = new Set<ClientRequest>();
  /** The addresses of the nodes that hold the partitions, as read last; null when they have to be read again. */
  #addresses: { read: Promise<ReadonlyMap<number, string>>; until: number } | null = null;
  /** The stamp that this node writes on the pulls that it forwards; null when it has to make a new one. */
  #stamp: { made: Promise<string>; until: number } | null = null;
  /** The stamps of other nodes that were found genuine. */
  readonly #genuine = new Set<string>();
  #is_draining = false;

  constructor({ cluster, clock }: PullForwarderParts) {
    this.#cluster = cluster;
    this.#clock = clock;
  }

  get is_draining(): boolean {
    return this.#is_draining;
  }

  /** Ends the forwarded pulls that wait, and forwards no more. */
  drain(): void {
    this.#is_draining = true;
    for (const request of this.#in_flight) request.destroy();
  }

  close(): void {
    this.drain();
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }

  /**
   * @param onRequest called with a function that cancels the request; the caller calls it when the client has gone
   * @returns the response; null when no node holds the partition of the instance, when the node that holds it did not
   * respond, or when this node stops
   */
  async forward(pull: ForwardedPull, onRequest: (cancel: () => void) => void): Promise<IncomingMessage | null> {
    const partition_no = partitionOf(pull.instance_id);
    const address = await this.#addressOf(partition_no);
    if (address === null || this.#is_draining) return null;
    const mark = `${encodeURIComponent(pull.address ?? '')} ${await this.#currentStamp()}`;
    if (this.#is_draining) return null;
    const { promise, resolve } = Promise.withResolvers<IncomingMessage | null>();
    const request = this.#request(address, pull, mark);
    this.#in_flight.add(request);
    onRequest(() => void request.destroy());
    const end = this.#clock.after(CONNECT_MS + pull.wait_ms + ANSWER_MS, () => void request.destroy());
    let connecting: Timer | null = this.#clock.after(CONNECT_MS, () => void request.destroy());
    const connected = (): void => {
      connecting?.cancel();
      connecting = null;
    };
    request.on('socket', (socket) => {
      if (socket.connecting) socket.once('connect', connected);
      else connected();
    });
    let has_responded = false;
    request.on('response', (response) => {
      has_responded = true;
      if (response.statusCode !== 200) this.#addresses = null;
      resolve(response);
    });
    request.on('error', () => resolve(null));
    request.on('close', () => {
      connected();
      end.cancel();
      if (!has_responded) this.#addresses = null;
      this.#in_flight.delete(request);
      resolve(null);
    });
    request.end(pull.body);
    return promise;
  }

  async #addressOf(partition_no: number): Promise<string | null> {
    const now = this.#clock.now();
    if (this.#addresses === null || now >= this.#addresses.until) {
      this.#addresses = { read: this.#cluster.addressesOfHolders(), until: now + ADDRESSES_MS };
    }
    const used = this.#addresses;
    let address: string | undefined;
    try {
      address = (await used.read).get(partition_no);
      return address ?? null;
    } finally {
      if (address === undefined && this.#addresses === used) this.#addresses = null;
    }
  }

  /**
   * The stamp shows that a node of this cluster forwards the pull. All pulls within STAMP_MS have the same stamp,
   * because each signature takes a call of the store.
   */
  async #currentStamp(): Promise<string> {
    const now = this.#clock.now();
    if (this.#stamp === null || now >= this.#stamp.until) {
      const text = `${STAMP_PREFIX}${this.#clock.wall()}`;
      const made = this.#cluster.sign(text).then((signature) => `${text} ${signature}`);
      this.#stamp = { made, until: now + STAMP_MS };
    }
    const used = this.#stamp;
    try {
      return await used.made;
    } catch (error) {
      if (this.#stamp === used) this.#stamp = null;
      throw error;
    }
  }

  #request(address: string, { instance_id, body, headers }: ForwardedPull, mark: string): ClientRequest {
    const base = new URL(address);
    const protocol = base.protocol === 'https:' ? 'https:' : 'http:';
    const path = `${base.pathname.replace(/\/$/, '')}/api/v1/instances/${encodeURIComponent(instance_id)}/pull/`;
    return (protocol === 'https:' ? https : http).request(new URL(path, base), {
      method: 'POST',
      agent: this.#agents[protocol],
      headers: {
        ...headers,
        // This node has checked that the request with the cookie comes from a page of Convoke. The other node knows
        // only its own address, so the request names that address as its origin.
        ...('cookie' in headers && { origin: base.origin }),
        'content-type': 'application/json',
        'content-length': String(Buffer.byteLength(body)),
        [FORWARDED_HEADER]: mark,
      },
    });
  }

  /**
   * Checks the mark of a forwarded pull.
   *
   * @param mark the value of the header
   * @returns the address of the client, null when the mark has none; undefined unless a node of this cluster wrote the
   * mark just now
   */
  async addressIn(mark: string): Promise<string | null | undefined> {
    const [address = '', text = '', ...signatures] = mark.split(' ');
    if (!text.startsWith(STAMP_PREFIX)) return undefined;
    const age_ms = this.#clock.wall() - Number(text.slice(STAMP_PREFIX.length));
    if (!(Math.abs(age_ms) <= CLOCKS_APART_MS)) return undefined;
    if (!(await this.#isGenuine(text, signatures.join(' ')))) return undefined;
    return address === '' ? null : decodeURIComponent(address);
  }

  async #isGenuine(text: string, signature: string): Promise<boolean> {
    const stamp = `${text} ${signature}`;
    if (this.#genuine.has(stamp)) return true;
    if (!(await this.#cluster.isSigned(text, signature))) return false;
    if (this.#genuine.size >= STAMPS_KNOWN_MAX) this.#genuine.clear();
    this.#genuine.add(stamp);
    return true;
  }
}
