import type { ClientRequest, IncomingMessage } from 'node:http';
import https from 'node:https';
import { partitionOf } from '../../domain/partition.ts';
import { http } from '../../node_http.ts';
import type { ClusterStore } from '../../store/contract/cluster.ts';
import type { Clock, Timer } from '../clock.ts';

/** The header that marks a forwarded request: the node that receives it does not forward it again. */
export const FORWARDED_HEADER = 'convoke-forwarded';

/**
 * How long the other node may take to accept a connection, and how long to respond after the wait of the pull is over.
 */
const CONNECT_MS = 2_000;
const ANSWER_MS = 10_000;
/** How long a node remembers which node holds a partition. A response other than 200 ends it. */
const ADDRESS_MS = 1_000;
/** How far the clocks of two nodes may differ. */
const CLOCKS_APART_MS = 60_000;

/** A pull as a client sent it to a node that does not deliver to its instance. */
export interface ForwardedPull {
  instance_id: string;
  /** JSON. */
  body: string;
  /** The client's own credentials, and the headers that describe it. */
  headers: Record<string, string>;
  /** The address of the client; null when it is not known. */
  address: string | null;
  wait_ms: number;
}

export interface PullForwarderParts {
  cluster: Pick<ClusterStore, 'addressOfHolder' | 'sign' | 'isSigned'>;
  clock: Clock;
}

/**
 * Forwards a pull to the node that delivers to its instance, with the credentials of its caller. The request goes
 * nowhere else: to one path, at an address that a node of this cluster has signed. The operator of that node declares
 * the address (CONVOKE_ADVERTISED_URL).
 */
export class PullForwarder {
  readonly #cluster: PullForwarderParts['cluster'];
  readonly #clock: Clock;
  readonly #agents = {
    'http:': new http.Agent({ keepAlive: true }),
    'https:': new https.Agent({ keepAlive: true }),
  };
  readonly #in_flight = new Set<ClientRequest>();
  /** The address of the node that holds a partition, by partition. */
  readonly #addresses = new Map<number, { address: string; until: number }>();
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
   * @param onRequest called with a function that ends the request when the client has gone
   * @returns the response; null when no node holds the instance, or that node did not respond
   */
  async forward(pull: ForwardedPull, onRequest: (cancel: () => void) => void): Promise<IncomingMessage | null> {
    const partition_no = partitionOf(pull.instance_id);
    const address = await this.#addressOf(partition_no);
    if (address === null || this.#is_draining) return null;
    const claims = { instance_id: pull.instance_id, address: pull.address, at: this.#clock.wall() };
    const text = Buffer.from(JSON.stringify(claims)).toString('base64url');
    const mark = `${text} ${await this.#cluster.sign(text)}`;
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
    let is_taken = false;
    request.on('response', (response) => {
      is_taken = response.statusCode === 200;
      resolve(response);
    });
    request.on('error', () => resolve(null));
    request.on('close', () => {
      connected();
      end.cancel();
      if (!is_taken) this.#addresses.delete(partition_no);
      this.#in_flight.delete(request);
      resolve(null);
    });
    request.end(pull.body);
    return promise;
  }

  async #addressOf(partition_no: number): Promise<string | null> {
    const now = this.#clock.now();
    const known = this.#addresses.get(partition_no);
    if (known !== undefined && now < known.until) return known.address;
    const address = await this.#cluster.addressOfHolder(partition_no);
    if (address === null) this.#addresses.delete(partition_no);
    else this.#addresses.set(partition_no, { address, until: now + ADDRESS_MS });
    return address;
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
        // This node has checked that a page of its own uses the session. The other node knows only its own address.
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
   * @returns the address of the client; undefined unless a node of this cluster wrote the mark for this instance just
   * now
   */
  async addressIn(mark: string, instance_id: string): Promise<string | null | undefined> {
    const end = mark.indexOf(' ');
    const text = mark.slice(0, Math.max(end, 0));
    if (!(await this.#cluster.isSigned(text, mark.slice(end + 1)))) return undefined;
    const claims = JSON.parse(Buffer.from(text, 'base64url').toString()) as {
      instance_id: string;
      address: string | null;
      at: number;
    };
    const is_fresh = Math.abs(this.#clock.wall() - claims.at) <= CLOCKS_APART_MS;
    return is_fresh && claims.instance_id === instance_id ? claims.address : undefined;
  }
}
