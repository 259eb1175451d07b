/**
 * Builds Convoke from the parts that src/convoke.ts uses, but in one of two other ways.
 *
 * - relay: the HTTP intake, and the transport, which signs and sends pushes. There is no engine, and no message is
 *   stored.
 * - stored: all of Convoke, with name servers that the bench chooses. The service has no setting for them.
 */
import { join } from 'node:path';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { disablePretenuring } from '../../src/delivery/v8_flags.ts';
import { DATABASE_FILE } from '../../src/domain/data_directory.ts';
import { readConfig } from '../../src/config/read_config.ts';
import { eventLoopLoad, systemClock } from '../../src/delivery/clock.ts';
import { Engine } from '../../src/delivery/engine.ts';
import { Expiry } from '../../src/delivery/expiry.ts';
import { Counts } from '../../src/delivery/counts.ts';
import { History } from '../../src/delivery/history.ts';
import { InstanceHistory } from '../../src/delivery/instance_history.ts';
import { Metrics } from '../../src/delivery/metrics.ts';
import { Partitions } from '../../src/delivery/cluster/partitions.ts';
import { PullTransport } from '../../src/delivery/transport/pull_transport.ts';
import { LateReplies } from '../../src/delivery/replies/late_replies.ts';
import { ReplyAccess } from '../../src/delivery/replies/reply_access.ts';
import { createWebhookTransport } from '../../src/delivery/transport/webhook_transport.ts';
import { AuditTrail } from '../../src/http/auth/audit_trail.ts';
import { Keyring } from '../../src/http/auth/keyring.ts';
import { PortalLinks } from '../../src/http/auth/portal_links.ts';
import { Limits } from '../../src/http/auth/limits.ts';
import { Changes } from '../../src/changes/changes.ts';
import { DemoMeeting } from '../../src/demo/meeting.ts';
import { Feed } from '../../src/feed/feed.ts';
import { allRoutes } from '../../src/http/routes/routes.ts';
import { createServer } from '../../src/http/server.ts';
import { Pages } from '../../src/http/pages.ts';
import { Sessions } from '../../src/http/auth/sessions.ts';
import { TestPushes } from '../../src/http/test_pushes.ts';
import { DerivedSecrets } from '../../src/store/secrets/derived_secrets.ts';
import type { Store } from '../../src/store/store.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import type { Fleet } from '../load/fleet.ts';
import { Relay } from './relay.ts';

export interface Composition {
  kind: 'relay' | 'stored';
  fleet: Fleet;
  data: string;
  name_servers?: string[];
}

disablePretenuring();
const { kind, fleet, data, name_servers } = JSON.parse(process.argv[2]!) as Composition;
const { config } = readConfig({ flags: { port: '0' } });
const clock = systemClock();
const user_agent = 'Convoke/bench';
const transport = createWebhookTransport({ policy: config.egress_policy, ...(name_servers && { name_servers }) });
const store = await openStore();
const settings = { ...config, user_agent };
const expiry = new Expiry(clock, config.expire_after_ms);

function engineOn(store: Store): Engine {
  return new Engine({
    clock,
    random: Math.random,
    load: eventLoopLoad(),
    store,
    transport,
    partitions: Partitions.alone(clock),
    expiry,
    observer: {
      accepted: (messages, deliveries) => metrics.accepted(messages, deliveries),
      attempted: (event) => metrics.attempted(event, Date.now()),
      settled: () => {},
      removed() {},
      suppressed: () => {},
      replied: () => {},
      storageFailed: (error) => console.error(error),
    },
    settings,
  });
}

const engine = kind === 'relay' ? (new Relay(fleet, transport, user_agent) as unknown as Engine) : engineOn(store);
const pull_transport = new PullTransport({
  clock,
  onReady: () => {},
  isReading: () => false,
  onConnection: () => {},
});
const metrics: Metrics = new Metrics(clock, () => engine, store, expiry, pull_transport, null);
const keyring = new Keyring(clock, store.api_keys, (error) => console.error(error));
const limits = new Limits(config, clock);
const onError = (error: unknown): void => console.error(error);
const written = (): Promise<void> => engine.written();
const feed = new Feed({ clock, store, listeners_max: config.max_feed_listeners, written, onError });
const log = pino({ level: 'warn' }, pino.destination(2));
const { egress_policy, max_message_bytes, max_request_bytes_in_flight, max_connections } = config;
const derived = ['reply tokens', 'portal links', 'sessions'].map(
  (purpose) => new DerivedSecrets(store.encryption, purpose),
) as [DerivedSecrets, DerivedSecrets, DerivedSecrets];
const [for_replies, for_links, for_sessions] = derived;
const sessions = new Sessions({ store, secrets: for_sessions, keyring, limits, clock, node_id: '', onError });
const audit_trail = new AuditTrail({ store, keyring, limits, clock, onError });
const reply_access = new ReplyAccess(for_replies, () => '');
const late_replies = new LateReplies({ store, engine, clock, max_message_bytes, keyring, observer: metrics });
const portal_links = new PortalLinks(for_links, keyring, store.instances, clock);
const changes = new Changes({ store, engine, feed, keyring, derived, clock, expiry });
const who = { keyring, limits, sessions, audit_trail };
const pages = new Pages();
const server = await createServer(
  { clock, log, ...who, pages, stall: store.stall, max_request_bytes_in_flight, max_connections },
  allRoutes({
    store,
    changes,
    engine,
    feed,
    test_pushes: new TestPushes(transport),
    pull_transport,
    pull_forwarder: null,
    takesPullsOf: () => true,
    clock,
    expiry,
    log,
    ...who,
    reply_access,
    late_replies,
    portal_links,
    node: { node_id: '', version: '', started_at: 0, address: () => '' },
    pages,
    public_url: null,
    environment: null,
    demo: new DemoMeeting({ store, changes, engine, clock, log, egress_policy, delivers: () => true }),
    limits_of_meetings: config,
    retention_deliveries_ms: config.retention_deliveries_ms,
    egress_policy,
    max_message_bytes,
    user_agent,
    metrics: () => metrics.text(),
    counts: new Counts({ clock, store }),
    history: new History({ clock, cluster: null }),
    instance_history: new InstanceHistory({ clock, cluster: null }),
    mcp: async () => (await import('../../src/mcp/endpoint.ts')).makeEndpoint(log),
  }),
);
await server.listen({ host: '127.0.0.1', port: 0 });
if (kind !== 'relay') await engine.start();
console.log(`bench ready http://127.0.0.1:${(server.server.address() as AddressInfo).port}`);

process.once('SIGTERM', () => process.exit());
process.once('disconnect', () => process.exit());

async function openStore(): Promise<Store> {
  const { store, opened } = openSqliteStore(join(data, DATABASE_FILE), null);
  await opened;
  return store;
}
