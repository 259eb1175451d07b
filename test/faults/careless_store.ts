/**
 * The control of fsync.faults.ts: stores each message and responds with 201, as Convoke does. But the caller chooses
 * `synchronous` of SQLite: `node careless_store.ts FILE OFF`.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DatabaseSync } from 'node:sqlite';

const [, , file = '', synchronous = 'OFF'] = process.argv;
const db = new DatabaseSync(file);
db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = ${synchronous}; CREATE TABLE messages (text TEXT)`);
const insert = db.prepare('INSERT INTO messages VALUES (?)');

const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const { lastInsertRowid } = insert.run(Buffer.concat(chunks).toString());
    const body = JSON.stringify({ message_id: `msg_careless_${lastInsertRowid}.` });
    response.writeHead(201, { 'content-type': 'application/json' }).end(body);
  });
});
server.listen(0, '127.0.0.1', () => console.log(`ready http://127.0.0.1:${(server.address() as AddressInfo).port}`));
process.on('SIGTERM', () => process.exit());
