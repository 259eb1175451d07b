/**
 * Known bugs that are planted to prove that the simulation finds each of them. A bug replaces a piece of text while a
 * module is loaded, in a second instance of the modules that only the simulation uses. The shipped program contains no
 * planted bug. It is an error when the text to replace is not found exactly once, so that every bug stays planted.
 */
import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';
import type { MakeWorld } from './run.ts';
import type { Kind, World, WorldOptions } from './world.ts';

interface PlantedEdit {
  /** Below the root of the repository. */
  file: string;
  find: string;
  replace: string;
}

const MODEL = 'test/simulation/model_store.ts';
const REPLIES = 'src/delivery/replies/replies.ts';
const DISPATCHER = 'src/delivery/attempts/dispatcher.ts';
const RESULTS = 'src/delivery/attempts/results.ts';
const DISCOVERY = 'src/delivery/discovery.ts';
const REMOTE_CHANGES = 'src/delivery/cluster/remote_changes.ts';
const ENQUEUER = 'src/delivery/lanes/enqueuer.ts';
const LOADER = 'src/delivery/lanes/lane_loader.ts';
const RECIPIENT = 'src/delivery/lanes/recipient.ts';
const LOCAL_CHANGES = 'src/delivery/local_changes.ts';
const MEETINGS = 'src/delivery/meetings.ts';
const PARTITIONS = 'src/delivery/cluster/partitions.ts';
const WORLD = 'test/simulation/world.ts';
const CLUSTER = 'test/simulation/model_cluster.ts';
const LANE = 'src/delivery/lanes/lane.ts';
const LANE_MEMORY = 'src/delivery/lanes/lane_memory.ts';
const DELIVERY = 'src/domain/delivery.ts';
const PULL_TRANSPORT = 'src/delivery/transport/pull_transport.ts';
const JUDGE = 'src/delivery/attempts/catch_up.ts';
const CATCH_UP = 'src/domain/catch_up.ts';
const GUARD = 'src/delivery/attempts/loop_guard.ts';
const PULL_ROUTE = 'src/http/routes/pull.ts';
const PULL_FORWARD = 'src/http/routes/pull_forward.ts';

/** A bug that uses a lane for two things at a time must also remove these assertions. */
const ONE_THING_AT_A_TIME: PlantedEdit[] = [
  { file: LANE, find: "assert(this.#state === 'idle' && !this.isEmpty,", replace: 'assert(true,' },
  { file: LANE, find: "assert(this.isBusy, 'only what was begun ends');", replace: '' },
  { file: LANE, find: "assert(this.#state === 'ready', 'only a ready lane takes a step');", replace: '' },
  { file: LANE, find: "assert(this.#state === 'idle', 'a lane does one thing at a time');", replace: '' },
];

/**
 * How many worlds, from seed 1 on, may be necessary to find a bug. The rarest bug takes some 2,600, and a change of the
 * engine changes that number.
 */
export const SEEDS_PER_BUG = 6_000;

export const PLANTED_BUGS: Record<string, PlantedEdit | PlantedEdit[]> = {
  'settles without the fence': {
    file: MODEL,
    find: [
      'if (row.expires_at !== settled.expires_at) continue;',
      '        const attempts = JSON.parse(fullAttemptsText(settled.attempts)) as Attempt[];',
      "        if (row.state === 'pending') Object",
    ].join('\n'),
    replace: 'const attempts = JSON.parse(fullAttemptsText(settled.attempts)) as Attempt[];\nif (true) Object',
  },
  'forgets what a machine took when it expires meanwhile': {
    file: MODEL,
    find: "else if (row.state === 'failed' && row.reason === 'expired') {",
    replace: 'else if (false) {',
  },
  // A batch gets its result before it is on disk: the next batch brings it there.
  'answers before the commit': [
    {
      file: MODEL,
      find: `readonly messages: StoreOperations['messages'] = {
    accept: (batch) => batch.map((message) => this.#accept(message)),`,
      replace: `unwritten: Accepted[] = [];
  lose(): void {
    for (const accepted of this.unwritten) {
      if (accepted.kind !== 'accepted') continue;
      this.#messages.delete(accepted.message.message_id);
      for (const { delivery_id, instance_id } of accepted.deliveries) {
        this.#deliveries.delete(delivery_id);
        this.#of_instance.set(instance_id, this.#of_instance.get(instance_id)!.filter((row) => row.delivery_id !== delivery_id));
      }
    }
  }
  readonly messages: StoreOperations['messages'] = {
    accept: (batch) => (this.unwritten = batch.map((message) => this.#accept(message))),`,
    },
    {
      file: WORLD,
      find: '    life.alive = false;\n',
      replace: 'life.alive = false; if (!clean) (this.#operations as unknown as { lose(): void }).lose();',
    },
  ],
  'skips left_at': { file: MODEL, find: 'if (left_at !== null) continue;', replace: '' },
  'skips webhook_enabled': { file: MODEL, find: 'if (!instance.webhook_enabled) continue;', replace: '' },
  'ignores the idempotency key': {
    file: MODEL,
    find: 'if (previous !== undefined && previous.created_at >',
    replace: 'if (previous !== undefined && 0 >',
  },
  'forgets to cancel what was beside a lane': {
    file: MODEL,
    find: '[...in_lanes, ...beside].slice',
    replace: '[...in_lanes].slice',
  },
  'two attempts in one lane': [
    {
      file: DISPATCHER,
      find: "lane !== undefined && lane.state === 'idle'",
      replace: "lane !== undefined && lane.state !== 'ready'",
    },
    ...ONE_THING_AT_A_TIME,
  ],
  'a lane goes on past a failing head': {
    file: RESULTS,
    find: 'if (steps_aside) {',
    replace: 'if (lane.aside || true) {',
  },
  'retries sooner than the schedule': {
    file: RESULTS,
    find: 'const again_at = now + verdict.delay_ms;',
    replace: 'const again_at = now + verdict.delay_ms / 2;',
  },
  'ignores Retry-After': {
    file: 'src/domain/retry_delay.ts',
    find: 'return asked_ms === null ? delay_ms',
    replace: 'return asked_ms !== -1 ? delay_ms',
  },
  'retries a 202': {
    file: DELIVERY,
    find: "if (outcome === 'not_200' || outcome === 'gone')",
    replace: "if (outcome === 'gone')",
  },
  'a 410 does not switch off': {
    file: 'src/delivery/lanes/registration.ts',
    find: 'this.#target = { ...this.#target, switched_on: false };',
    replace: '',
  },
  'pushes to what is switched off': {
    file: RECIPIENT,
    find: ' || !target.switched_on)',
    replace: ')',
  },
  'backs off not at all': {
    file: RECIPIENT,
    find: 'if (health.backoff_until !== null && now < health.backoff_until) return false;',
    replace: '',
  },
  'a back-off does not double': {
    file: DELIVERY,
    find: 'next.backoff_step = health.backoff_step + 1;',
    replace: 'next.backoff_step = 1;',
  },
  'probes with many at once': {
    file: RECIPIENT,
    find: 'if (isProbed(health)) return this.in_flight + this.loads < 1;',
    replace: '',
  },
  'no limit for one instance': {
    file: RECIPIENT,
    find: 'return short + this.loads < concurrency;',
    replace: 'return true;',
  },
  'waits beside a lane for a clock that was ahead': {
    file: DISCOVERY,
    find: 'await pending_scan.bound(partitions, latestDue()).catch(() => {});',
    replace: '',
  },
  'believes any clock when it starts': {
    file: 'src/delivery/expiry.ts',
    find: 'held_ms <= believed_ms',
    replace: 'held_ms <= Infinity',
  },
  'expires what waits by a clock that was suspended': {
    file: 'src/delivery/expiry.ts',
    find: 'this.#offset_ms += behind_ms;',
    replace: '',
  },
  'counts from before a suspend what it accepts after it': {
    file: 'src/delivery/expiry.ts',
    find: 'Math.max(this.sharedAt(now), this.#awakeAt(now))',
    replace: 'this.sharedAt(now)',
  },
  'no limit over all': {
    file: DISPATCHER,
    find: 'while (this.#in_flight.limited < this.#max_in_flight &&',
    replace: 'while (',
  },
  'a load begins after the wrong seq': {
    file: LOADER,
    find: 'const { meeting_id, last_seq: after_seq, generation } = lane;',
    replace: 'const { meeting_id, last_seq, generation } = lane; const after_seq = last_seq + 1;',
  },
  'what was spilled is overtaken': [
    {
      file: ENQUEUER,
      find: ' || staysOnDisk(recipient, lane);',
      replace: ';',
    },
    { file: LANE, find: 'else this.backlog.push(delivery);', replace: 'else this.appendRead(delivery);' },
  ],
  'does not discover what was pending': {
    file: DISCOVERY,
    find: 'await this.scan(partitions, (lane) => this.markSpilled(lane));',
    replace: '',
  },
  'what was cancelled is delivered': [
    { file: LOCAL_CHANGES, find: 'if (recipient !== undefined) recipients.drop(recipient);', replace: '' },
    {
      file: LOCAL_CHANGES,
      find: '    recipient.registration.invalidate();\n    for (const lane of [...recipient.lanes.values(), recipient.aside]) dispatcher.invalidateLane(recipient, lane);\n',
      replace: '',
    },
  ],
  'a failed deletion that was done is not looked into': {
    file: LOCAL_CHANGES,
    find: '    recipient.registration.invalidate();\n    for (const lane of [...recipient.lanes.values(), recipient.aside]) dispatcher.invalidateLane(recipient, lane);\n',
    replace: '',
  },
  'forgets a settlement when the disk fails': {
    file: 'src/delivery/attempts/settlements.ts',
    find: 'await new Promise<void>((resolve) => void this.#clock.after(RETRY_MS, resolve));',
    replace: 'break;',
  },
  'delivers before the replies are stored': {
    file: 'src/delivery/attempts/attempts.ts',
    find: "const unsent = target.replies ? this.#replies.take(head, result, target.replier, isLost) : '';",
    replace:
      "if (target.replies) void this.#replies.take(head, result, target.replier, isLost); const unsent: string | Promise<string | null> = '';",
  },
  'forgets a reply when the disk fails': {
    file: REPLIES,
    find: 'left = left.filter((_, k) => tried[k] === null);',
    replace: 'left = [];',
  },
  'sends a reply again when its push comes again': {
    file: 'src/delivery/replies/reply_send.ts',
    find: 'idempotency: { ...idempotency, sender: SENDER },',
    replace: 'idempotency: null,',
  },
  'takes a reply for another one of its response': {
    file: REPLIES,
    find: 'key: `${delivery.delivery_id}:${place}`',
    replace: 'key: `${delivery.delivery_id}`',
  },
  'one slow machine delays the others': {
    file: DISPATCHER,
    find: 'if (recipient === undefined) break;\n',
    replace:
      'if (recipient === undefined) break;\n      if (this.#in_flight.count > 0 && [...this.#recipients.all()].some((other) => other.in_flight > 0 && this.#clock.now() - other.moved_at > 50)) { recipient.is_touched = true; this.#turns.list(recipient); break; }\n',
  },
  'an instance that is up to date waits for the backlog of others': {
    file: RECIPIENT,
    find: 'return !this.is_behind || this.is_touched;',
    replace: 'return false;',
  },
  'settles without the epoch': { file: CLUSTER, find: 'epoch === this.epochOf(instance_id);', replace: 'true;' },
  'ignores the run of a message': {
    file: ENQUEUER,
    find: 'const has_gap = is_after_gap && lane.newest_seq < seq - 1;',
    replace: 'const has_gap = false;',
  },
  'starts attempts on a lease that ran out': {
    file: DISPATCHER,
    find: 'if (!this.#partitions.isLeaseValid(now)) break;',
    replace: '',
  },
  'gives partitions back with attempts in progress': {
    file: PARTITIONS,
    find: 'if (partition.in_flight === 0) partition.onIdle();\n    else ',
    replace: 'partition.onIdle();\n    ',
  },
  'gives partitions back before results are written': {
    file: PARTITIONS,
    find: 'await this.#listener?.flush();',
    replace: '',
  },
  'does not look again when changes may be missing': {
    file: REMOTE_CHANGES,
    find: 'void this.#resyncAll();',
    replace: '',
  },
  'trusts what others report of a lane without anything pending': {
    file: ENQUEUER,
    find: 'const may_be_done = contiguous_from !== null && lane.newest_seq === 0 && !is_known;',
    replace: 'const may_be_done = false;',
  },
  'ignores what other nodes store': {
    file: REMOTE_CHANGES,
    find: 'for (const message of messages) enqueuer.enqueue(message, contiguous_from, this.#read_started_at, false);',
    replace: '',
  },
  'takes for a run what has a gap': {
    file: 'src/delivery/cluster/seen_ranges.ts',
    find: 'range?.to === first_seq - 1 ?',
    replace: 'range !== undefined ?',
  },
  'skips what stands before a tail': {
    file: LOADER,
    find: 'rows.filter(({ seq }) => seq < backlog.tail_from);',
    replace: 'lane.tail_length > 0 ? [] : rows;',
  },
  'takes for new what it read already': {
    file: ENQUEUER,
    find: 'if (seq <= lane.newest_seq) continue;',
    replace: '',
  },
  'keeps what it lost': {
    file: REMOTE_CHANGES,
    find: 'if (partitions.has(recipient.partition)) recipients.drop(recipient);',
    replace: ';',
  },
  'remembers what the store has lost': [
    { file: REMOTE_CHANGES, find: 'seen_ranges.clear();', replace: '' },
    {
      file: REMOTE_CHANGES,
      find: '      this.#invalidateLanes(recipient);\n      lane_cursors.drop(recipient);\n',
      replace: 'this.#invalidateLanes(recipient);',
    },
    {
      file: REMOTE_CHANGES,
      find: '        lane.last_seq = 0;\n        if (lane.contiguous_from !== null) lane.contiguous_from = 0;\n',
      replace: '',
    },
  ],
  'ignores what other nodes change': { file: REMOTE_CHANGES, find: 'this.onInstanceChange(change);', replace: '' },
  'pushes what is paused': {
    file: MEETINGS,
    find: 'return this.#paused.size > 0 && this.#paused.has(meeting_id);',
    replace: 'return false;',
  },
  'pushes before it knows what is paused': {
    file: DISPATCHER,
    find: 'this.#is_draining || !this.#meetings.is_loaded)',
    replace: 'this.#is_draining)',
  },
  'does not let go of what was paused': {
    file: DISPATCHER,
    find: 'lane.held_until = 0;',
    replace: '',
  },
  'forgets what was aside when a meeting was paused': {
    file: LOCAL_CHANGES,
    find: 'if (resumed && is_any_active) void discovery.scanAside(partitions.held);',
    replace: '',
  },
  'hands out two of one lane at a time': [
    {
      file: DISPATCHER,
      find: "lane !== undefined && lane.state === 'idle'",
      replace:
        "lane !== undefined && (lane.state === 'idle' || (recipient.long_in_flight > 0 && lane.state !== 'ready'))",
    },
    ...ONE_THING_AT_A_TIME,
    {
      file: LANE_MEMORY,
      find: "assert(delivery !== undefined, 'only the head of a lane is taken');",
      replace: 'if (delivery === undefined) return;',
    },
  ],
  'a late result ends a newer attempt': {
    file: PULL_TRANSPORT,
    find: 'if (awaited === null || awaited.attempt !== result.attempt) return false;',
    replace: 'if (awaited === null) return false;',
  },
  'nobody pulls, and a retry is spent': [
    {
      file: PULL_TRANSPORT,
      find: 'return instance !== undefined && this.#takerOf(instance, updated_at) !== null;',
      replace: 'return instance !== undefined || updated_at > 0;',
    },
    {
      file: PULL_TRANSPORT,
      find: 'if (pull === null) return Promise.resolve(null);',
      replace:
        "if (pull === null) return Promise.resolve({ outcome: 'timeout', status_code: null, detail: '', duration_ms: 0, stages: [], response_excerpt: '', retry_after: null });",
    },
  ],
  'hands out on a lease that ran out': {
    file: DISPATCHER,
    find: 'if (!this.#partitions.isLeaseValid(now)) break;',
    replace: '',
  },
  'counts results on a lease that ran out': {
    file: WORLD,
    find: 'partitions.of(instance_id) !== null && partitions.isLeaseValid(clock.now())',
    replace: 'partitions.of(instance_id) !== null',
  },
  'keeps in hand what another node took over': {
    file: REMOTE_CHANGES,
    find: 'transport.handOver((instance_id) => partition_nos.has(partitionOf(instance_id)));',
    replace: '',
  },
  'a result that counted is forgotten': {
    file: PULL_TRANSPORT,
    find: 'this.#settle(awaited, judged);',
    replace: 'if (result.attempt === 1) this.#settle(awaited, judged);',
  },
  'what did not leave its node is waited for': {
    file: PULL_ROUTE,
    find: 'else if (!isWritten(response)) pull_transport.lose(this.#pushes);',
    replace: '',
  },
  'a node that stops loses the results that it was given': {
    file: PULL_FORWARD,
    find: 'if (pull_forwarder.is_draining && !brings_results) return',
    replace: 'if (pull_forwarder.is_draining) return',
  },
  'what a lost response had waits for its deadline': {
    file: PULL_TRANSPORT,
    find: 'this.lose(instance.in_hand.filter((awaited) => awaited.pull_id === pull_id));',
    replace: '',
  },
  'what a machine has is taken back with a lost response': {
    file: PULL_TRANSPORT,
    find: 'this.lose(instance.in_hand.filter((awaited) => awaited.pull_id === pull_id));',
    replace: 'this.lose(instance.in_hand.filter(() => pull_id !== null));',
  },
  'a pull on a dead connection still waits': {
    file: PULL_TRANSPORT,
    find: 'instance.waiting.filter(({ request }) => request.pull_id === pull_id)',
    replace: 'instance.waiting.filter(() => pull_id === null)',
  },
  'of two pulls that race under one name both wait': [
    { file: PULL_ROUTE, find: 'if (pull_id !== null) pull_transport.takeBack(instance_id, pull_id);', replace: '' },
    {
      file: PULL_ROUTE,
      find: 'await takeResults(context, instance_id, given) : NO_RESULTS;',
      replace:
        'await takeResults(context, instance_id, given) : NO_RESULTS; if (pull_id !== null) pull_transport.takeBack(instance_id, pull_id);',
    },
  ],
  'a takeover forgets what a pair sent': {
    file: GUARD,
    find: 'for (const sent of went) {',
    replace: 'for (const sent of went.slice(went.length)) {',
  },
  'a machine that was away gets everything': {
    file: CATCH_UP,
    find: "return supersedes(newest_of_people) || (head.is_of_agent && supersedes(newest)) ? 'superseded' : null;",
    replace: 'return supersedes(null) ? null : null;',
  },
  'agents supersede a person': {
    file: CATCH_UP,
    find: '(head.is_of_agent && supersedes(newest))',
    replace: 'supersedes(newest)',
  },
  'what was read of a head long ago counts': {
    file: JUDGE,
    find: 'known.read_at > FRESH_MS',
    replace: 'known.read_at > Infinity',
  },
  'a machine that did not pull was never away': {
    file: RECIPIENT,
    find: '    if (this.long_in_flight === 0 && now - Math.max(waits_since, moved_at) >= GONE_AFTER_MS) this.returned_at = now;\n',
    replace: '',
  },
  'what waits a moment for a pull was away': {
    file: RECIPIENT,
    find: 'if (this.long_in_flight === 0 && now - Math.max(waits_since, moved_at) >= GONE_AFTER_MS) this.returned_at',
    replace: 'this.returned_at',
  },
  'the newest supersedes itself': { file: CATCH_UP, find: 'other.seq > head.seq &&', replace: '' },
  'what was stopped counts': {
    file: GUARD,
    find: 'if (reason === null) for (const pair of pairs)',
    replace: 'for (const pair of pairs)',
  },
  'does not judge what a store that went back gives a number again': {
    file: REMOTE_CHANGES,
    find: 'guard.forgetAll();',
    replace: '',
  },
  'judges no hops': {
    file: 'src/domain/guard_rule.ts',
    find: "if (limits.hop_limit > 0 && hops > limits.hop_limit) return 'hop_limit';",
    replace: '',
  },
  'what was dropped is pushed': {
    file: LOCAL_CHANGES,
    find: 'if (meeting_id !== undefined) await this.meetingChanged(meeting_id, false);',
    replace: 'if (meeting_id !== undefined) return;',
  },
};

/** Bugs between several nodes. */
const IN_CLUSTERS: readonly string[] = [
  'settles without the epoch',
  'ignores the run of a message',
  'starts attempts on a lease that ran out',
  'gives partitions back with attempts in progress',
  'gives partitions back before results are written',
  'does not look again when changes may be missing',
  'trusts what others report of a lane without anything pending',
  'ignores what other nodes store',
  'takes for a run what has a gap',
  'skips what stands before a tail',
  'takes for new what it read already',
  'keeps what it lost',
  'ignores what other nodes change',
  'pushes before it knows what is paused',
  'remembers what the store has lost',
  'hands out on a lease that ran out',
  'counts results on a lease that ran out',
  'keeps in hand what another node took over',
  'a node that stops loses the results that it was given',
  'does not judge what a store that went back gives a number again',
  'expires what waits by a clock that was suspended',
  'counts from before a suspend what it accepts after it',
  'of two pulls that race under one name both wait',
];
const WITH_AGENTS: readonly string[] = [
  'a takeover forgets what a pair sent',
  'what was stopped counts',
  'does not judge what a store that went back gives a number again',
  'judges no hops',
  'what was dropped is pushed',
];
const WITH_RETURNING_MACHINES: readonly string[] = [
  'a machine that was away gets everything',
  'agents supersede a person',
  'a machine that did not pull was never away',
  'what waits a moment for a pull was away',
  'the newest supersedes itself',
  'what was read of a head long ago counts',
];
const WITH_PULLING_MACHINES: readonly string[] = [
  'hands out two of one lane at a time',
  'a late result ends a newer attempt',
  'nobody pulls, and a retry is spent',
  'hands out on a lease that ran out',
  'counts results on a lease that ran out',
  'keeps in hand what another node took over',
  'a result that counted is forgotten',
  'what did not leave its node is waited for',
  'a node that stops loses the results that it was given',
  'what a lost response had waits for its deadline',
  'what a machine has is taken back with a lost response',
  'a pull on a dead connection still waits',
  'of two pulls that race under one name both wait',
];

const WITH_LATE_RESULTS: readonly string[] = ['trusts what others report of a lane without anything pending'];

const WITH_EXPIRING_MESSAGES: readonly string[] = [
  'forgets what a machine took when it expires meanwhile',
  'expires what waits by a clock that was suspended',
  'counts from before a suspend what it accepts after it',
];

function kindFor(name: string): Kind {
  if (WITH_EXPIRING_MESSAGES.includes(name)) return 'expiring';
  if (WITH_LATE_RESULTS.includes(name)) return 'late';
  if (WITH_PULLING_MACHINES.includes(name)) return 'pulling';
  if (WITH_RETURNING_MACHINES.includes(name)) return 'returning';
  return WITH_AGENTS.includes(name) ? 'talking' : 'plain';
}

/** The worlds in which a bug can be found. */
export function worldsFor(name: string): WorldOptions {
  return { cluster: IN_CLUSTERS.includes(name), kind: kindFor(name) };
}

const ROOT = new URL('../../', import.meta.url).href;
let hooked = false;

/** Returns a function that makes worlds with a bug. @param name a key of PLANTED_BUGS */
export async function plant(name: string): Promise<MakeWorld> {
  assert(name in PLANTED_BUGS, `there is no planted bug ${name}`);
  if (!hooked) hook();
  hooked = true;
  const planted = (await import(`./world.ts?planted=${encodeURIComponent(name)}`)) as { World: typeof World };
  const { World: PlantedWorld } = planted;
  return (seed, options) => new PlantedWorld(seed, options);
}

function hook(): void {
  registerHooks({
    // Modules that a module with a bug imports are also loaded in the second instance.
    resolve(specifier, context, next) {
      const resolved = next(specifier, context);
      const planted = context.parentURL === undefined ? null : new URL(context.parentURL).searchParams.get('planted');
      if (planted === null || !resolved.url.startsWith(ROOT) || resolved.url.includes('/node_modules/'))
        return resolved;
      return { ...resolved, url: `${resolved.url}?planted=${encodeURIComponent(planted)}` };
    },
    load(url, context, next) {
      const planted = url.startsWith('file:') ? new URL(url).searchParams.get('planted') : null;
      const loaded = next(url, context);
      if (planted === null) return loaded;
      const edits = [PLANTED_BUGS[planted] ?? []].flat().filter(({ file }) => url.startsWith(`${ROOT}${file}?`));
      if (edits.length === 0) return loaded;
      let source = String(typeof loaded.source === 'string' ? loaded.source : Buffer.from(loaded.source as Uint8Array));
      for (const { find, replace } of edits) {
        const parts = source.split(find);
        assert.equal(
          parts.length,
          2,
          `planting "${planted}": ${JSON.stringify(find)} stands ${parts.length - 1} times`,
        );
        source = parts.join(replace);
      }
      return { ...loaded, source };
    },
  });
}
