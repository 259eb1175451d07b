/**
 * Sees every connection that this process begins, from below what is tested: where net.Socket is told to connect, and
 * where Node asks the system to. A test that counts here does not trust the code that decides.
 */
import { createHook } from 'node:async_hooks';
import { Socket } from 'node:net';
import type { TestContext } from 'node:test';

export interface Dialled {
  host: string;
  port: number;
}

/** What becomes of a connection: it is made, it is made to another place, or it is refused without a packet. */
export type Route = 'pass' | 'refuse' | Dialled;

export interface SocketTap {
  /** What sockets were told to connect to, in order. */
  readonly dialled: Dialled[];
  /** Connections that the system was asked for (TCP and local sockets alike), whatever asked for them. */
  readonly opened: number;
  /** Questions that went to the system's resolver or to a name server. */
  readonly lookups: number;
  dialledPort(port: number): string[];
}

const CONNECTIONS = new Set(['TCPCONNECTWRAP', 'PIPECONNECTWRAP']);
const LOOKUPS = new Set(['QUERYWRAP', 'GETADDRINFOREQWRAP']);

/** Taps this process until the test ends. */
export function tapSockets(
  t: Pick<TestContext, 'after'>,
  route: (dialled: Dialled) => Route = () => 'pass',
): SocketTap {
  const dialled: Dialled[] = [];
  let [opened, lookups] = [0, 0];
  const hook = createHook({
    init(_, type) {
      if (CONNECTIONS.has(type)) opened++;
      else if (LOOKUPS.has(type)) lookups++;
    },
  }).enable();

  // oxlint-disable-next-line typescript/unbound-method -- it is called with its socket
  const connect = Socket.prototype.connect as (this: Socket, ...args: unknown[]) => Socket;
  Socket.prototype.connect = function tapped(this: Socket, ...args: unknown[]): Socket {
    // net.connect hands its arguments over as one normalised array.
    const [options] = (Array.isArray(args[0]) ? args[0] : args) as [Partial<Dialled>];
    const wanted = { host: String(options.host), port: Number(options.port) };
    dialled.push(wanted);
    const way = route(wanted);
    if (way === 'pass') return connect.apply(this, args);
    if (way !== 'refuse') return connect.call(this, way);
    const error = Object.assign(new Error('the tap refuses'), { code: 'ECONNREFUSED' });
    process.nextTick(() => this.destroy(error));
    return this;
  };
  t.after(() => {
    hook.disable();
    Socket.prototype.connect = connect;
  });
  return {
    dialled,
    get opened() {
      return opened;
    },
    get lookups() {
      return lookups;
    },
    dialledPort: (port) => dialled.filter((each) => each.port === port).map(({ host }) => host),
  };
}
