/**
 * `NodeProcess` imports this into a process before its program. Then the process connects to the machines from its own
 * source address, so that they see which process sends a push. Linux allows any address of 127.0.0.0/8.
 */
import { Socket } from 'node:net';

const { FAULTS_SENDER, FAULTS_MACHINES_PORT } = process.env;
// oxlint-disable-next-line typescript/unbound-method -- it is called with its socket
const connect = Socket.prototype.connect as (this: Socket, ...args: unknown[]) => Socket;

Socket.prototype.connect = function (this: Socket, ...args: unknown[]): Socket {
  // `net.connect` passes its arguments on as one list.
  const [options] = Array.isArray(args[0]) ? (args[0] as unknown[]) : args;
  if (
    typeof options === 'object' &&
    options !== null &&
    String((options as { port?: unknown }).port) === FAULTS_MACHINES_PORT
  ) {
    Object.assign(options, { localAddress: FAULTS_SENDER });
  }
  return connect.apply(this, args);
};
