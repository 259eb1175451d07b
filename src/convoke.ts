/**
 * The composition root: builds all parts and connects them. Read this first, then src/delivery/engine.ts. A part that
 * only one command needs is loaded with that command.
 *
 *   http ──► engine ──► transport ──► receivers
 *     │        │
 *     └────────┴──► store
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { Config } from './config/config.ts';
import { isLoopbackHost } from './domain/host.ts';
import { BoundedLog } from './delivery/bounded_log.ts';
import { eventLoopLoad, systemClock } from './delivery/clock.ts';
import { Counts } from './delivery/counts.ts';
import { DeliveryLog } from './delivery/delivery_log.ts';
import { Engine } from './delivery/engine.ts';
import { Expiry } from './delivery/expiry.ts';
import { History } from './delivery/history.ts';
import { InstanceHistory } from './delivery/instance_history.ts';
import { ConnectionNotes } from './delivery/connection_notes.ts';
import { Maintenance } from './delivery/maintenance.ts';
import { Metrics } from './delivery/metrics.ts';
import { Partitions } from './delivery/cluster/partitions.ts';
import { PullForwarder } from './delivery/cluster/pull_forwarder.ts';
import { PullTransport } from './delivery/transport/pull_transport.ts';
import { endSubscription } from './delivery/runtimes/subscriber.ts';
import { RuntimeTransport } from './delivery/runtimes/runtime_transport.ts';
import { Transports } from './delivery/transport/transports.ts';
import { LateReplies } from './delivery/replies/late_replies.ts';
import { ReplyAccess } from './delivery/replies/reply_access.ts';
import { descriptorsMax, idleConnectionsMax } from './delivery/transport/idle_connections.ts';
import { createWebhookTransport } from './delivery/transport/webhook_transport.ts';
import { AuditTrail } from './http/auth/audit_trail.ts';
import { Changes } from './changes/changes.ts';
import { SubscriptionLeases } from './changes/subscription_leases.ts';
import { DemoMeeting } from './demo/meeting.ts';
import { Feed } from './feed/feed.ts';
import { connectionEvent } from './feed/events.ts';
import { Keyring } from './http/auth/keyring.ts';
import { Limits } from './http/auth/limits.ts';
import { PortalLinks } from './http/auth/portal_links.ts';
import { Pages } from './http/pages.ts';
import { TestPushes } from './http/test_pushes.ts';
import { allRoutes } from './http/routes/routes.ts';
import { createServer } from './http/server.ts';
import { Sessions } from './http/auth/sessions.ts';
import { newNodeId, reachableUrlOf, urlOf } from './node/identity.ts';
import { Notices } from './node/notices.ts';
import { engineObserver, expiryObserver, maintenanceObserver, partitionsObserver } from './node/observers.ts';
import { entryOfStart, logFailure, type Surroundings, warnOfClock, warnOfRefusedUrls } from './node/start.ts';
import { describeFailure } from './store/thread/own_work.ts';
import { describeDamaged } from './store/rows/stored_values.ts';
import { openStore } from './store/open.ts';
import { DerivedSecrets } from './store/secrets/derived_secrets.ts';
import { VERSION } from './version.ts';

/**
 * How long a stop waits for requests in progress: longer than a short attempt (5 s), and shorter than the whole stop
 * that `convoke serve` permits (6.5 s).
 */
const CLIENTS_MS_MAX = 5_500;

/** A running node. */
export interface Convoke {
  /** `http://HOST:PORT`, with the port that was bound. */
  url: string;
  /** Whether requests need no key yet. */
  is_open: boolean;
  /** Makes a link that signs in an admin. The link works once, for five minutes. Nobody else may see it. */
  signInLink(): string;
  /**
   * Starts no more attempts, and serves requests until `drain_ms` are over. Then it ends long attempts, waits until short
   * ones have ended, writes the results, and closes everything.
   *
   * @param drain_ms how long requests on open connections are still served, each with `connection: close`; 0 when
   * absent: idle connections are closed at once
   */
  close(drain_ms?: number): Promise<void>;
}

/** Thrown when other machines could reach the service while no key exists: everybody could use it then. */
export class NoKeyError extends Error {
  readonly code = 'NO_KEY';
}

/**
 * Starts a node. When the promise resolves, the node serves requests.
 *
 * @throws StoreError when the data file cannot be used; NoKeyError when other machines could use the service without a
 * key; the system's error when the port cannot be bound
 */
export async function createConvoke(
  config: Config,
  { log: lines, clock = systemClock(), traces: trace_settings = null, store_thread, onStoreLost }: Surroundings,
): Promise<Convoke> {
  const log = new BoundedLog(lines, clock);
  const user_agent = `Convoke/${VERSION}`;
  const node_id = newNodeId();
  const traces =
    trace_settings && (await import('./node/traces/traces.ts')).startTraces(trace_settings, { node_id, clock, log });
  const { store, opened } = openStore(
    config,
    {
      committed: (commit) => metrics.committed(commit),
      damaged: (damaged) => log.error(damaged, describeDamaged(damaged)),
      changeUnreadable: (error) =>
        log.error({ err: error }, 'a notification of another node could not be read; everything is looked at again'),
      ownWorkFailed: (work, error) => log.error({ err: error }, describeFailure(work)),
      lost: onStoreLost ?? ((error) => log.error({ err: error }, 'the store is lost: this node can do nothing more')),
    },
    store_thread,
  );
  const webhook_transport = createWebhookTransport({
    policy: config.egress_policy,
    idle_connections_max: idleConnectionsMax(descriptorsMax(), config.max_connections + config.max_in_flight),
  });
  const pull_transport: PullTransport = new PullTransport({
    clock,
    onReady: (instance_id) => engine.isReady(instance_id),
    isReading: (instance_id) => engine.isReading(instance_id),
    onConnection: (instance_id, connection) => connection_notes.note(instance_id, connection),
  });
  const runtime_transport = new RuntimeTransport({
    clock,
    webhook: webhook_transport,
    store,
    instance_concurrency: config.instance_concurrency,
    onReady: (instance_id) => engine.isReady(instance_id),
    onError: (error) =>
      log.error({ err: error }, 'the history of a meeting could not be read; the push is tried again'),
  });
  const transport = new Transports({ webhook: runtime_transport, pull: pull_transport });
  const expiry = new Expiry(clock, config.expire_after_ms, expiryObserver(log));
  const metrics: Metrics = new Metrics(clock, () => engine, store, expiry, pull_transport, traces);
  const { cluster } = store;
  const history = new History({ clock, cluster });
  const instance_history = new InstanceHistory({ clock, cluster });
  const counts = new Counts({ clock, store });
  const feed = new Feed({
    clock,
    store,
    listeners_max: config.max_feed_listeners,
    written: () => engine.written(),
    onError: (error) => log.error({ err: error }, 'the live feed could not read the store'),
  });
  const node = { node_id, version: VERSION, started_at: clock.wall(), address: () => advertised_url };
  let url = '';
  let advertised_url = '';
  const partitions = new Partitions(clock, store.cluster, node, partitionsObserver(metrics, log));
  const connection_notes = new ConnectionNotes({
    clock,
    store,
    epochOf: (instance_id) => partitions.of(instance_id)?.epoch ?? null,
    onNoted(instance_id, connection) {
      if (feed.is_active) feed.publish(connectionEvent(instance_id, connection, clock.wall()));
    },
    onError: (error) => log.error({ err: error }, 'which machines pull could not be noted; it is tried again'),
  });
  const secrets = {
    replies: new DerivedSecrets(store.encryption, 'reply tokens'),
    portal_links: new DerivedSecrets(store.encryption, 'portal links'),
    sessions: new DerivedSecrets(store.encryption, 'sessions'),
  };
  const reply_access = new ReplyAccess(secrets.replies, () => config.public_url ?? advertised_url);
  const delivery_log: DeliveryLog = new DeliveryLog({ log, clock, healths: () => engine.healths() });
  const { notices_meeting: meeting_id } = config;
  const notices =
    meeting_id === null
      ? null
      : new Notices({ clock, node_id: node.node_id, meeting_id, send: (send) => engine.send(send) });
  const reported = { metrics, history, instance_history, feed, delivery_log, notices, log, clock };
  const engine: Engine = new Engine({
    clock,
    random: Math.random,
    load: eventLoopLoad(),
    store,
    transport,
    partitions,
    expiry,
    observer: engineObserver(reported),
    settings: { ...config, user_agent },
    reply_access,
    tracer: traces?.tracer ?? null,
  });
  if (cluster !== null) feed.joinNodes((topic, text) => cluster.broadcast(topic, text));
  const maintenance = new Maintenance(clock, store, config, expiry, maintenanceObserver(reported, engine), () =>
    partitions.holds(0),
  );
  const keyring = new Keyring(clock, store.api_keys, (error) =>
    log.warn({ err: error }, 'the use of keys was not noted'),
  );
  const portal_links = new PortalLinks(secrets.portal_links, keyring, store.instances, clock);
  keyring.others = portal_links;
  const limits = new Limits(config, clock);
  const sessions: Sessions = new Sessions({
    store,
    secrets: secrets.sessions,
    keyring,
    limits,
    clock,
    node_id: node.node_id,
    onError: (error) => log.error({ err: error }, 'which sessions have ended could not be read; it is tried again'),
  });
  const audit_trail = new AuditTrail({
    store,
    keyring,
    limits,
    clock,
    onError: (error) => log.error({ err: error }, 'the audit log could not be written'),
  });
  const { egress_policy, max_message_bytes } = config;
  const changes = new Changes({ store, engine, feed, keyring, derived: Object.values(secrets), clock, expiry });
  const leases = new SubscriptionLeases({
    store,
    instances: changes.instances,
    clock,
    expiry,
    onRevoked({ instance_id, webhook_url: url, webhook_secret: secret, runtime }) {
      const id = String(runtime?.options['id']);
      const subscriber = { instance_id, url, secret, id };
      return endSubscription(webhook_transport, subscriber, randomUUID(), clock.wall(), user_agent);
    },
    onError: (error) => log.error({ err: error }, 'subscriptions that ended could not be removed; it is tried again'),
  });
  const late_replies = new LateReplies({ store, engine, clock, max_message_bytes, keyring, observer: metrics });
  const pull_forwarder = store.cluster === null ? null : new PullForwarder({ cluster: store.cluster, clock });
  const delivers = (instance_id: string): boolean => partitions.of(instance_id) !== null;
  const demo = new DemoMeeting({ store, changes, engine, clock, log, egress_policy, delivers });
  const pages = new Pages(config.portal_origins);
  const building = createServer(
    {
      clock,
      log,
      keyring,
      limits,
      sessions,
      audit_trail,
      stall: store.stall,
      max_request_bytes_in_flight: config.max_request_bytes_in_flight,
      max_connections: config.max_connections,
      cors_origins: config.cors_origins,
      pages,
    },
    allRoutes({
      store,
      changes,
      engine,
      feed,
      test_pushes: new TestPushes(webhook_transport),
      pull_transport,
      pull_forwarder,
      // A result counts only while this node holds the lease: after a pause of this process, another node may deliver.
      takesPullsOf: (instance_id) => delivers(instance_id) && partitions.isLeaseValid(clock.now()),
      clock,
      expiry,
      log,
      keyring,
      limits,
      sessions,
      audit_trail,
      demo,
      pages,
      public_url: config.public_url,
      environment: config.environment,
      reply_access,
      late_replies,
      portal_links,
      node,
      limits_of_meetings: config,
      retention_deliveries_ms: config.retention_deliveries_ms,
      egress_policy,
      max_message_bytes,
      user_agent,
      metrics: () => metrics.text(),
      counts,
      history,
      instance_history,
      mcp: async () => (await import('./mcp/endpoint.ts')).makeEndpoint(log),
    }),
  );

  // The store opens in its thread while the routes are built here.
  const [server] = await Promise.all([building, opened]);
  try {
    const { previous_key_ids } = await store.encryption.keyIds();
    if (previous_key_ids.length > 0) {
      log.warn(
        { previous_key_ids },
        'secrets are still encrypted under the previous data key: `convoke keys reencrypt` ends the change',
      );
    }
    await Promise.all(Object.values(secrets).map((each) => each.refresh()));
    await keyring.refresh();
    keyring.onChange = () => {
      feed.endRevoked();
      pull_transport.endRevoked();
      leases.look();
    };
    sessions.onEnd = () => {
      feed.endRevoked();
      pull_transport.endRevoked();
    };
    if (keyring.is_open && !isLoopbackHost(config.host))
      throw new NoKeyError(`there is no key, and ${config.host} is not loopback`);
    expiry.begin(await store.deliveries.timeNoted(), config.trust_clock, await store.messages.last());
    warnOfClock(expiry.heldAt(clock.now()), log);
    await store.deliveries.noteTime(expiry.note(clock.now()));
    // For localhost, Fastify would open a second server at the other loopback address. Nothing here would limit or stop
    // that server.
    await server.listen({ host: config.host === 'localhost' ? '127.0.0.1' : config.host, port: config.port });
    url = urlOf(server.server.address() as AddressInfo);
    advertised_url = config.advertised_url ?? reachableUrlOf(server.server.address() as AddressInfo);
    // Comes last: a service manager repeats a start that fails, and each try would leave an entry.
    await store.audit.append(entryOfStart(config), clock.wall());
  } catch (error) {
    const closed = server.close();
    // The port may be open already, and a request may wait for a store that does not respond.
    server.server.closeAllConnections();
    await closed;
    await store.close();
    throw error;
  }
  store.onChange((change) => {
    engine.onChange(change);
    if (change.kind === 'broadcast') {
      feed.onBroadcast(change.topic, change.text);
      history.onBroadcast(change.topic, change.text);
      instance_history.onBroadcast(change.topic, change.text);
    } else if (change.kind === 'resync') {
      feed.onResync();
      history.onResync();
    }
    // One of the missed changes may be the revocation of a key.
    if (change.kind !== 'keys' && change.kind !== 'resync') return;
    const read = change.kind === 'keys' ? keyring.refresh() : keyring.refreshAll();
    read.catch((error: unknown) => log.error({ err: error }, 'keys that were changed could not be read'));
  });
  if (cluster !== null) keyring.follow();
  feed.seekListeners();
  maintenance.start();
  leases.start();
  engine.start().catch(logFailure(log, 'could not read what was pending'));
  // Until then, a pull would be refused, because no node delivers to its instance.
  await partitions.first_renewal;
  warnOfRefusedUrls(store, config.egress_policy, log).catch(
    logFailure(log, 'could not check the stored webhook addresses'),
  );
  return {
    url,
    get is_open() {
      return keyring.is_open;
    },
    signInLink: () => `${urlOf(server.server.address() as AddressInfo)}/#sign-in=${sessions.makeLink()}`,
    async close(drain_ms = 0) {
      maintenance.stop();
      leases.stop();
      // Other nodes take the partitions of this node meanwhile.
      engine.drain();
      const slow_clients = clock.after(CLIENTS_MS_MAX, () => server.server.closeAllConnections());
      const clients_gone = once(server.server, 'close');
      // Comes before `pull_transport.drain()` ends the pulls: then their responses close the connections.
      server.connections.closeWithResponses();
      const drained = drain_ms > 0 ? server.connections.drain(server.server, drain_ms) : Promise.resolve();
      pull_transport.drain();
      pull_forwarder?.drain();
      connection_notes.stop();
      await Promise.all([demo.close(), drained]);
      // When their feeds end, the listeners connect again, to another node.
      feed.stop();
      sessions.close();
      await Promise.all([server.close(), clients_gone]);
      slow_clients.cancel();
      // Ends attempts that may take long: pushes in hand, and attempts whose agent still thinks. They are made again
      // after the next start.
      transport.handOver(() => true);
      // The last attempts may fail, so the notices close after them.
      await engine.attemptsEnded();
      await notices?.close();
      await leases.ended();
      await engine.stop();
      history.stop();
      instance_history.stop();
      await transport.close();
      // A collector that does not respond delays nothing else.
      const spans_sent = traces?.close();
      pull_forwarder?.close();
      await keyring.close();
      await audit_trail.close();
      await store.close();
      delivery_log.close();
      await spans_sent;
      log.close();
    },
  };
}
