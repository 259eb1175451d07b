/** The limit of connections that stay open between pushes follows from file descriptors and from memory. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { test } from 'node:test';
import { descriptorsMax, IdleConnections, idleConnectionsMax } from '../../src/delivery/transport/idle_connections.ts';
import { PooledConnection } from '../../src/delivery/transport/pooled_connection.ts';

const KIB = 1024;

function connection(socket: Socket): PooledConnection {
  return new PooledConnection('http://localhost', socket, () => {});
}

test('unused connections leave descriptors for all clients and all pushes in flight', () => {
  assert.equal(idleConnectionsMax(65_536, 14_000), 50_536);
  assert.equal(idleConnectionsMax(20_000, 14_000), 5_000);
});

test('where clients and pushes may need all descriptors, an eighth is for unused connections', () => {
  assert.equal(idleConnectionsMax(4_096, 14_000), 512);
});

test('where the limit of descriptors is unlimited or not known, there is a number all the same', () => {
  assert.equal(idleConnectionsMax(Infinity, 14_000), Infinity);
  assert.equal(idleConnectionsMax(null, 14_000), 4_096);
});

test('the limit of descriptors is that of the process', { skip: process.platform !== 'linux' }, () => {
  assert.equal(String(descriptorsMax()), execFileSync('sh', ['-c', 'ulimit -n'], { encoding: 'utf8' }).trim());
});

test('the memory of unused connections is bounded, and one with TLS takes as much as three', () => {
  const idle = new IdleConnections(100, 80 * KIB);
  for (let i = 0; i < 3; i++) idle.add(connection(new Socket()));
  const secured = connection(new TLSSocket(new Socket()));
  assert.equal(idle.hasRoomFor(secured), false);
  const plain = connection(new Socket());
  assert.equal(idle.hasRoomFor(plain), true);
  idle.add(plain);
  assert.equal(idle.hasRoomFor(connection(new Socket())), false);
  assert.equal(idle.delete(plain), true);
  assert.equal(idle.delete(plain), false);
  assert.equal(idle.hasRoomFor(connection(new Socket())), true);
});
