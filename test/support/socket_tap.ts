/**
 * Sees every connection that this process begins, independently of the tested code: at net.Socket, and where Node calls
 * the system. So a test does not have to trust the code that decides about connections.
 */
import { createHook } from 'node:async_hooks';
import { Socket } from 'node:net';
import type { TestContext } from 'node:test';

export interface Dialled {
  host: string;
  port: number;
}

/** What happens to a connection: it is made, it is made to another address, or it is refused without a packet. */
export type Route = 'pass' | 'refuse' | Dialled;

export interface SocketTap {
  /** The addresses to which sockets were told to connect, in order. */
  readonly dialled: Dialled[];
  /** How many connections any code requested from the system, TCP and local sockets. */
  readonly opened: number;
  /** How many questions went to the system's resolver or to a name server. */
  readonly lookups: number;
  dialledPort(port: number): string[];
}

const CONNECTIONS = new Set(['TCPCONNECTWRAP', 'PIPECONNECTWRAP']);
const LOOKUPS = new Set(['QUERYWRAP', 'GETADDRINFOREQWRAP']);

/** Watches the connections of this process until the test ends. */
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
    // net.connect passes its arguments as one normalised array.
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
