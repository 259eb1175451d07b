/**
 * The naive way: while the sender waits for its response, this stores the message, POSTs to one receiver after the
 * other, and writes the results.
 */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { listen, onEnd, type PeerOptions, sender } from './parts.ts';

const { fleet, data } = JSON.parse(process.argv[2]!) as PeerOptions;
const db = new DatabaseSync(join(data, 'naive.db'));
db.exec(`
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = FULL;
  CREATE TABLE pushes (id INTEGER PRIMARY KEY, message_id TEXT NOT NULL, instance_id TEXT NOT NULL, body TEXT NOT NULL,
    status INTEGER) STRICT;`);
const insert = db.prepare('INSERT INTO pushes (message_id, instance_id, body) VALUES (?, ?, ?)');
const update = db.prepare('UPDATE pushes SET status = ? WHERE id = ?');
const push = sender(fleet);

await listen(fleet, async (jobs) => {
  db.exec('BEGIN IMMEDIATE');
  const ids = jobs.map(
    ({ message_id, instance_id, body }) => insert.run(message_id, instance_id, body).lastInsertRowid,
  );
  db.exec('COMMIT');
  const statuses: number[] = [];
  for (const [i, job] of jobs.entries()) statuses.push(await push(`dlv_${ids[i]}`, job).catch(() => 0));
  db.exec('BEGIN IMMEDIATE');
  for (const [i, status] of statuses.entries()) update.run(status, ids[i]!);
  db.exec('COMMIT');
});

onEnd(async () => db.close());
