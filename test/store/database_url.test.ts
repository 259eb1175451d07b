/** Connection strings that name several servers. several_servers.slow.ts tests which of the servers the store takes. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { parseDatabaseUrl } from '../../src/domain/database_url.ts';

describe('a connection string', () => {
  test('names one server as ever, and is handed to the driver as it is', () => {
    for (const [url, where] of [
      ['postgres://u:p@db.internal/convoke', 'db.internal:5432'],
      ['postgresql://u:p%40ss@[::1]:6000/convoke?sslmode=require', '[::1]:6000'],
      ['postgres:///convoke?host=/run/postgresql', 'this machine:5432'],
    ] as const) {
      assert.deepEqual(parseDatabaseUrl(url), { servers: [{ url, where }], must_write: false });
    }
  });

  test('names several, each with its port; one of them has to write', () => {
    assert.deepEqual(parseDatabaseUrl('postgres://u:p@h@a:1,[::1]:2,c/db?target_session_attrs=read-write#x'), {
      servers: [
        { url: 'postgres://u:p@h@a:1/db?target_session_attrs=read-write#x', where: 'a:1' },
        { url: 'postgres://u:p@h@[::1]:2/db?target_session_attrs=read-write#x', where: '[::1]:2' },
        { url: 'postgres://u:p@h@c/db?target_session_attrs=read-write#x', where: 'c:5432' },
      ],
      must_write: true,
    });
    assert.equal(parseDatabaseUrl('postgres://a,b/db')?.must_write, true);
    assert.equal(parseDatabaseUrl('postgres://a/db?target_session_attrs=primary')?.must_write, true);
    assert.equal(parseDatabaseUrl('postgres://a/db?target_session_attrs=any')?.must_write, false);
  });

  test('is refused with a host that is missing, a port that is none, too many hosts, or a wish for a standby', () => {
    for (const url of [
      'mysql://a/db',
      'postgres:db',
      'postgres://a,/db',
      'postgres://,a/db',
      'postgres://a:1,b:x/db',
      'postgres://a:1,b:70000/db',
      'postgres://a/d\nb',
      `postgres://${Array.from({ length: 9 }, (_, k) => `h${k}`).join()}/db`,
      'postgres://a,b/db?target_session_attrs=standby',
      'postgres://a,b/db?target_session_attrs=read-only',
      'postgres://a,b/db?target_session_attrs=',
    ]) {
      assert.equal(parseDatabaseUrl(url), null, url);
    }
  });
});
