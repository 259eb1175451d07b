/**
 * A TCP proxy that cuts connections at the moment that a test chooses, for example after a request and before its
 * response.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

/**
 * What the proxy does with bytes that arrive: it passes them on, cuts the connection without passing them on, or drops
 * them and keeps the connection.
 */
export type Verdict = 'pass' | 'cut' | 'swallow';

export class CuttingProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #connections = 0;
  /** The destination of new connections. */
  to_port: number;
  /** Decides about bytes of a client. `connection` counts the connections in the order in which they are made. */
  onRequest: (bytes: Buffer, connection: number) => Verdict = () => 'pass';
  /** Decides about bytes of the server. */
  onAnswer: (bytes: Buffer, connection: number) => Verdict = () => 'pass';
  /** The delay of bytes in milliseconds, in both directions. The order of bytes stays. */
  delayOf: () => number = () => 0;

  private constructor(to_port: number) {
    this.to_port = to_port;
    this.#server = createServer((client) => {
      const connection = ++this.#connections;
      const upstream = connect(this.to_port, '127.0.0.1');
      this.#pipe(client, upstream, (bytes) => this.onRequest(bytes, connection));
      this.#pipe(upstream, client, (bytes) => this.onAnswer(bytes, connection));
    });
  }

  static async start(to_port: number): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(to_port);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Cuts all connections. */
  cutAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.cutAll();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #pipe(from: Socket, to: Socket, judge: (bytes: Buffer) => Verdict): void {
    this.#sockets.add(from);
    let delayed = 0;
    let previous = Promise.resolve();
    const passOn = (bytes: Buffer): void => {
      const delay_ms = this.delayOf();
      if (delay_ms === 0 && delayed === 0) return void to.write(bytes);
      delayed++;
      const over = pause(delay_ms);
      previous = previous
        .then(() => over)
        .then(() => {
          delayed--;
          to.write(bytes);
        });
    };
    from.on('data', (bytes: Buffer) => {
      const verdict = judge(bytes);
      if (verdict === 'pass') passOn(bytes);
      else if (verdict === 'cut') {
        from.destroy();
        to.destroy();
      }
    });
    from.on('error', () => {});
    from.on('close', () => {
      this.#sockets.delete(from);
      to.destroy();
    });
  }
}
