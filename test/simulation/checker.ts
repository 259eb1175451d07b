/**
 * Checks the promises from outside: from the responses that senders and operators got, and from the pushes that
 * receivers got. When a crash or a failing disk leaves two possible results, the checker allows both. It never asks the
 * engine. From the store it reads only committed rows, as an operator could.
 */
import { BACKOFF_FIRST_MS, BACKOFF_MAX_MS, LANE_HELD_THROUGH_ATTEMPT } from '../../src/domain/delivery.ts';
import { RETRY_AFTER_MS_MAX } from '../../src/domain/retry_delay.ts';
import { DOWN_AFTER_FAILURES } from '../../src/domain/instance.ts';
import { OUTCOMES } from '../../src/domain/outcome.ts';
import type { EngineSettings } from '../../src/delivery/engine.ts';
import { LOSSES_MAX, LOST } from '../../src/delivery/transport/pull_result.ts';
import type { PushResult } from '../../src/delivery/transport/transport.ts';
import { type AcceptedMessage, IDEMPOTENCY_MS } from '../../src/store/contract/messages.ts';
import type {
  DeliveryRow,
  DeliverySettlement,
  HealthSettlement,
  LaneKey,
} from '../../src/store/contract/deliveries.ts';
import type { StoreOperations } from './model_store.ts';

/** The most that jitter shortens a delay. */
const SHORTEST = 0.8;
/** How soon a machine that is always well must get an accepted message, whatever happens to other machines. */
const PROMPT_MS = 1_000;
/** A message waits for the two batches that are in flight, and then for its own. */
const BATCHES_AWAITED = 3;
/** When a node judges the head of a lane, it has seen all messages that are at least this old. */
const SEEN_MS = 2_000;
/**
 * A machine was certainly away if it did not pull and had nothing in hand for this long, while a delivery waited for it
 * all the time.
 */
const AWAY_MS = 10_000 + 2 * SEEN_MS;
/** When the last fault is at least this long ago, a machine that is always well pulls all the time. */
const WELL_MS = 90_000;
/** How many messages to machines without a backlog may go before each attempt for a backlog: see turns.ts. */
const FIRST_IN_A_ROW = 4;
/** Up to this many waiting deliveries of a machine are no backlog. */
const LITTLE = 4;

export interface WorldSettings extends EngineSettings {
  expire_after_ms: number;
}

/** A message, as its sender knows it. A sender that repeats a message with the same key uses the same object. */
export interface Sent {
  label: number;
  meeting_id: string;
  target: string | null;
  /** The agent that says the message; it has the name of its instance. Null when a person says the message. */
  from: string | null;
  in_reply_to: string | null;
  expires_in_ms: number | null;
  /** The instances that must get the message, and the instances that may get it. */
  must: Set<string>;
  may: Set<string>;
  started_at: number;
  /** When the send began, on a clock that nobody sets. */
  began_at: number;
  /** When the send began, on the wall clock: it decides how long idempotency keys are kept. */
  wall_at: number;
  open: number;
  response: AcceptedMessage | null;
  /** Whether the sender got no response, so that the message may have been accepted or not. */
  unknown: boolean;
  refused: boolean;
}

/** One instance, as its operator and its machine know it. */
export interface Machine {
  instance_id: string;
  /** Whether the machine is always well and no operator touches it. Other machines must not delay such a machine. */
  untouched: boolean;
  url: string;
  generation: number;
  removed: boolean;
  /** How many operations have no response yet, and how many starts and ends of operations there were. */
  ops_open: number;
  ops_total: number;
  on: boolean;
  /** Whether the machine responded 410, and the store does not have this yet. */
  gone_unsettled: boolean;
  gone_at: number;
  gone: { ops_total: number; term: number } | null;
  not_before: number;
  /** When the back-off began. */
  backed_off_at: number;
  backoff_step: number;
  /** The last time at which an operation may have ended the back-off of the machine. */
  lifted_at: number;
  failures: number;
  failed_at: number;
  /** The last time at which the machine responded well. */
  well_at: number;
  in_flight: Flight[];
  /** How long a machine that pulls may take for a result; null for a webhook. */
  ack_timeout_ms: number | null;
  /** The pulls that wait at a node, and the time since which no pull waits. */
  waiting_pulls: Set<string>;
  unpulled_since: number;
  /** When the machine last had a push in hand. */
  had_in_hand_at: number;
  /**
   * The last period of AWAY_MS or more without a pull and with nothing in hand: when it began, and when the machine
   * pulled again.
   */
  away: { since: number; until: number } | null;
  /** How many attempts did not end well. */
  failed_ever: number;
}

export interface Flight {
  track: Track;
  machine: Machine;
  generation: number;
  /** The node that makes the attempt, and the term in which this node holds the instance. */
  node: number;
  term: number;
  url: string;
  started_at: number;
  ops_total: number;
  /** The number of the attempt. */
  attempt: number;
  /**
   * Whether the delivery ended and was queued again during the attempt. Then the result does not change the delivery.
   */
  is_requeued: boolean;
  /** Whether the whole response with the push left its node. From then on a machine may have the push in hand. */
  left: boolean;
  /** The name of the pull that got the push; null until a pull got it, and for a webhook. */
  pull_id: string | null;
}

type HandedOut = Pick<Flight, 'attempt'> & Pick<Track, 'delivery_id'>;

/** One delivery, as its receiver saw it. */
interface Track {
  delivery_id: string;
  sent: Sent;
  lane: LaneTrack;
  seq: number;
  /** The attempts that the stored delivery must contain. */
  attempts: number;
  pushed: boolean;
  answered_badly: number;
  /** Whether somebody queued the delivery again by hand. */
  manual: boolean;
  /** Whether the delivery was dropped or expired, and nobody has queued it again. */
  has_ended: boolean;
  /**
   * Whether the store went back and lost that a rule had cancelled the delivery. By then later messages may have been
   * pushed, so its first attempt may come after theirs.
   */
  was_cancelled: boolean;
  not_before: number;
  end: 'ok' | 'failed' | null;
  handled: boolean;
  last: PushResult | null;
  /** The term in which each node made its last attempt, by node. */
  terms: Map<number, number>;
  /** Whether the store went back while the delivery existed. Then nodes may know more or less of it than the store. */
  is_unsure: boolean;
}

/** A message that waits for its push to a machine with few other pending deliveries. */
interface Wait {
  sent: Sent;
  machine: Machine;
  since: number;
  /**
   * How many attempts to other machines began while no attempt to this machine was in flight, and how many may begin.
   */
  others: number;
  others_max: number;
}

/** Somebody dropped waiting deliveries. Times are on the wall clock; `until` is null while the call is in progress. */
interface Drop {
  of: Partial<LaneKey>;
  since: number;
  until: number | null;
}

interface LaneTrack {
  machine: Machine;
  meeting_id: string;
  first_seq: number;
  head: Track | null;
}

/** Facts about the world that the checker needs. */
export interface Circumstances {
  now: () => number;
  /** A clock that nobody sets back. It is ahead by the sum of all steps by which the wall clock was set ahead. */
  real: () => number;
  /** A number that changes whenever the instance moves to another node or process. */
  termOf: (instance_id: string) => number;
  /** Whether the disk and all nodes are well. */
  isUndisturbed: () => boolean;
  /** How far the steady clocks of two nodes may be apart: one may make a retry that much before the time of another. */
  clocksApart: () => number;
  /**
   * Whether the disk fails, and pushes to an instance wait for it: their judgement reads, or the replies to the push
   * before are stored first.
   */
  mayWaitForDisk: (instance_id: string) => boolean;
}

export class Checker {
  violation: string | null = null;
  readonly sent: Sent[] = [];
  readonly machines = new Map<string, Machine>();
  readonly #tracks = new Map<string, Track>();
  readonly #lanes = new Map<string, LaneTrack>();
  readonly #operations: StoreOperations;
  readonly #settings: WorldSettings;
  readonly #meetings: readonly string[];
  readonly #members = new Map<string, Set<string>>();
  readonly #now: () => number;
  readonly #real: () => number;
  readonly #termOf: (instance_id: string) => number;
  readonly #isUndisturbed: () => boolean;
  readonly #clocksApart: () => number;
  readonly #mayWaitForDisk: (instance_id: string) => boolean;
  /**
   * The deliveries that the store lost when it went back, by delivery_id. A node may still make attempts for them,
   * until it notices that the store went back.
   */
  readonly #lost = new Map<string, Track>();
  /** The replies that the store lost when it went back, by delivery and place. */
  readonly #lost_replies = new Set<string>();
  #noticed_at = 0;
  /** How many replies a machine gave to a delivery: the most in one response, and the number in the latest response. */
  readonly #replies = new Map<string, { most: number; latest: number }>();
  /** The results that pulling machines reported, by delivery and attempt. */
  readonly #reported = new Set<string>();
  /** The results that a node confirmed as counted, by node, delivery and attempt. */
  readonly #counted = new Set<string>();
  /** How often pushes were taken back, by delivery. */
  readonly #taken_back = new Map<string, number>();
  /** The circumstances in which an attempt was handed out, by delivery, attempt and pull. */
  readonly #handed_out = new Map<string, string>();
  /** The attempts that pulling machines received, with the latest pull of each. */
  readonly #received = new Map<string, { under: string | undefined; pull_id: string }>();
  /** The names of pulls that were repeated: nobody can know whether the pushes of the first request arrived. */
  readonly #repeated_pulls = new Set<string>();
  readonly #drops: Drop[] = [];
  /** How many attempts at webhooks are in flight, by node. */
  readonly #in_flight = new Map<number, number>();
  #waits: Wait[] = [];
  /**
   * The last time at which a crash, a start, a failing disk or a fault between nodes could delay messages.
   */
  disturbed_at = 0;
  /** Whether memberships have the rule that a machine that was away gets only the newest message that waited. */
  is_latest = false;

  constructor(
    operations: StoreOperations,
    settings: WorldSettings,
    meetings: readonly string[],
    { now, real, termOf, isUndisturbed, clocksApart, mayWaitForDisk }: Circumstances,
  ) {
    this.#operations = operations;
    this.#settings = settings;
    this.#meetings = meetings;
    this.#now = now;
    this.#real = real;
    this.#termOf = termOf;
    this.#isUndisturbed = isUndisturbed;
    this.#clocksApart = clocksApart;
    this.#mayWaitForDisk = mayWaitForDisk;
  }

  fail(violation: string): void {
    this.violation ??= violation;
  }

  add(instance_id: string, url: string, untouched: boolean, ack_timeout_ms: number | null): Machine {
    const machine: Machine = {
      instance_id,
      untouched,
      url,
      generation: 0,
      removed: false,
      ops_open: 0,
      ops_total: 0,
      on: false,
      gone_unsettled: false,
      gone_at: 0,
      backed_off_at: 0,
      gone: null,
      not_before: 0,
      backoff_step: 0,
      lifted_at: 0,
      failures: 0,
      failed_at: 0,
      well_at: -1,
      in_flight: [],
      ack_timeout_ms,
      waiting_pulls: new Set(),
      unpulled_since: 0,
      had_in_hand_at: 0,
      away: null,
      failed_ever: 0,
    };
    this.machines.set(instance_id, machine);
    return machine;
  }

  // ── operators ─────────────────────────────────────────────────────────────────────────────────────────────────────

  opStarts(machine: Machine): void {
    machine.ops_open++;
    machine.ops_total++;
    this.#review(machine);
  }

  /** @param registers whether the operation switched the instance on again, so that an earlier 410 no longer counts */
  opEnds(machine: Machine, started_at: number, registers: boolean): void {
    machine.ops_open--;
    machine.ops_total++;
    // Any operation may have ended the back-off.
    machine.not_before = 0;
    machine.backoff_step = 0;
    machine.failures = 0;
    machine.lifted_at = this.#now();
    if (registers && started_at > machine.gone_at) machine.gone_unsettled = false;
    this.look(machine);
  }

  /** Reads from the store whether the machine is switched on. */
  look(machine: Machine): void {
    const row = this.#operations.instances.load([machine.instance_id])[0];
    machine.on = row !== undefined && row.is_active && row.webhook_enabled;
    if (!machine.on) machine.gone_unsettled = false;
    for (const meeting_id of this.#meetings) {
      const page = this.#operations.meetings.instances(meeting_id, { limit: 100 });
      this.#members.set(meeting_id, new Set(page?.data.map(({ instance_id }) => instance_id)));
    }
    this.#review(machine);
  }

  /** Whether a machine gets the messages of a meeting; null when that cannot be seen from outside. */
  #gets(machine: Machine, meeting_id: string): boolean | null {
    if (machine.ops_open > 0 || machine.gone_unsettled) return null;
    return machine.on && this.#members.get(meeting_id)?.has(machine.instance_id) === true;
  }

  #review(machine: Machine): void {
    for (const sent of this.sent) if (sent.open > 0) this.#judge(sent, machine);
  }

  #judge(sent: Sent, machine: Machine): void {
    const { instance_id } = machine;
    if (isBesides(sent, instance_id)) return;
    const gets = this.#gets(machine, sent.meeting_id);
    if (gets !== true) sent.must.delete(instance_id);
    if (gets !== false) sent.may.add(instance_id);
  }

  /** Notes that somebody queues failed deliveries of an instance again by hand. */
  markManual(instance_id: string): void {
    for (const row of this.#rows(instance_id)) {
      if (row.state !== 'failed' && row.state !== 'pending') continue;
      // A delivery that was never attempted has a due time only when it was queued again: it may have expired just before.
      const is_new = row.next_attempt_at === null && !this.#tracks.has(row.delivery_id);
      if (row.state === 'pending' && is_new) continue;
      this.markRetried(row);
    }
  }

  markRetried(row: DeliveryRow): void {
    // The head of the lane goes first. The retry of a delivery behind it ends the wait of the head.
    const { head } = this.#laneOf(this.machines.get(row.instance_id) as Machine, row.meeting_id);
    if (head !== null) head.not_before = 0;
    const track = this.#tracks.get(row.delivery_id) ?? this.#track(row);
    if (track === null) return;
    track.manual = true;
    track.not_before = 0;
    track.answered_badly = 0;
    if (track.end === 'failed') track.end = null;
    if (track.lane.head === track) track.lane.head = null;
    this.#forgetEnded(track, row);
  }

  /**
   * Notes pushes whose delivery was dropped or expired while they were in flight, and queued again before their result.
   * The result of such a push changes nothing, and the delivery is pushed again.
   */
  #forgetEnded(track: Track, { delivery_id }: DeliveryRow): void {
    if (!track.has_ended) return;
    const row = this.#operations.deliveries.get(delivery_id, this.#now());
    if (row?.state !== 'pending') return;
    track.has_ended = false;
    if (row.attempt_count >= track.attempts) return;
    this.#forgive(track, row.attempt_count + 1);
    for (const flight of track.lane.machine.in_flight) if (flight.track === track) flight.is_requeued = true;
  }

  // ── senders ───────────────────────────────────────────────────────────────────────────────────────────────────────

  sendStarts(sent: Sent): void {
    if (!this.sent.includes(sent)) {
      this.sent.push(sent);
      for (const machine of this.machines.values()) {
        sent.must.add(machine.instance_id);
        if (isBesides(sent, machine.instance_id)) sent.must.delete(machine.instance_id);
      }
    }
    sent.open++;
    for (const machine of this.machines.values()) this.#judge(sent, machine);
  }

  sendEnds(sent: Sent, message: AcceptedMessage): void {
    sent.open--;
    if (sent.response !== null && sent.response.message_id !== message.message_id)
      this.fail(`message ${sent.label} was accepted twice`);
    for (const other of this.sent) {
      if (other === sent || other.response === null || other.meeting_id !== sent.meeting_id || sent.response !== null)
        continue;
      if (other.response.seq === message.seq) this.fail(`two messages have seq ${message.seq}`);
    }
    sent.response = message;
  }

  /**
   * Called when a world's only node accepted a message. A machine that is well and has few pending deliveries must not
   * wait for the backlogs of other machines. Before each of its attempts every other machine may have one attempt, and
   * a machine with a backlog may have two.
   *
   * @param replies whether a machine replies: then its next attempt waits until its reply is stored
   */
  waitsFor(sent: Sent, replies: (instance_id: string) => boolean): void {
    const now = this.#now();
    for (const machine of this.machines.values()) {
      // After a disturbance the node first reads the deliveries of the machine. Other machines go on meanwhile.
      if (!machine.untouched || !sent.must.has(machine.instance_id) || machine.well_at <= this.disturbed_at) continue;
      if (machine.ack_timeout_ms !== null || this.#mayWaitForDisk(machine.instance_id)) continue;
      if (replies(machine.instance_id)) continue;
      const pending = this.#rows(machine.instance_id).filter(({ delivery_id, state }) => {
        return state === 'pending' && (this.#tracks.get(delivery_id)?.end ?? null) === null;
      });
      const own = pending.find(({ message_id }) => message_id === sent.response?.message_id);
      if (own === undefined || pending.length > LITTLE || this.#tracks.has(own.delivery_id)) continue;
      // Before an attempt that a rule may cancel, the node reads the table. Meanwhile other machines may have an attempt
      // in each of their lanes.
      const at_a_time = this.is_latest ? this.#meetings.length : 1;
      // Where few attempts may be in flight, messages to machines without a backlog go before the rest of a backlog.
      const before_rest = this.#settings.max_in_flight < 1_000 ? FIRST_IN_A_ROW + 1 : at_a_time;
      const others_max = this.machines.size * (at_a_time + before_rest * (pending.length - 1));
      this.#waits.push({ sent, machine, since: now, others: 0, others_max });
    }
  }

  /** A node cancelled a delivery: the later messages of the lane may go on before that is on disk. */
  suppressed(delivery_id: string): void {
    const track = this.#tracks.get(delivery_id);
    if (track !== undefined && track.lane.head === track) track.lane.head = null;
  }

  #isPending({ response }: Sent, { instance_id }: Machine): boolean {
    return this.#rows(instance_id).some((row) => row.message_id === response?.message_id && row.state === 'pending');
  }

  #countWaits(sent: Sent, machine: Machine): void {
    this.#waits = this.#waits.filter((wait) => {
      return wait.since > this.disturbed_at && !(wait.machine === machine && wait.sent === sent);
    });
    for (const wait of this.#waits) {
      if (wait.machine !== machine && wait.machine.in_flight.length === 0) wait.others++;
      // Or it has expired meanwhile.
      if (wait.others > wait.others_max && this.#isPending(wait.sent, wait.machine))
        this.fail(`message ${wait.sent.label} to ${wait.machine.instance_id} waits for the backlog of others`);
    }
  }

  // ── machines ──────────────────────────────────────────────────────────────────────────────────────────────────────

  #laneOf(machine: Machine, meeting_id: string): LaneTrack {
    const key = `${machine.instance_id} ${meeting_id}`;
    let lane = this.#lanes.get(key);
    if (lane === undefined) {
      lane = { machine, meeting_id, first_seq: 0, head: null };
      this.#lanes.set(key, lane);
    }
    return lane;
  }

  /** Finds the message of a delivery by its text, because its sender may never have learned its id. */
  #labelOf({ meeting_id, seq }: DeliveryRow): number | null {
    const page = this.#operations.messages.list(meeting_id, { after_seq: seq - 1, limit: 1, chars_max: 1e9 });
    const text = page?.data.find((message) => message.seq === seq)?.message;
    return text === undefined ? null : (JSON.parse(text) as { n: number }).n;
  }

  #track(row: DeliveryRow, label = this.#labelOf(row)): Track | null {
    const machine = this.machines.get(row.instance_id) as Machine;
    const sent = this.sent.find((sent) => sent.label === label);
    if (sent === undefined) return null;
    const track: Track = {
      delivery_id: row.delivery_id,
      sent,
      lane: this.#laneOf(machine, row.meeting_id),
      seq: row.seq,
      attempts: 0,
      pushed: false,
      answered_badly: 0,
      manual: false,
      has_ended: false,
      was_cancelled: false,
      not_before: 0,
      end: null,
      handled: false,
      last: null,
      terms: new Map(),
      is_unsure: false,
    };
    this.#tracks.set(row.delivery_id, track);
    return track;
  }

  isAside(track: Track): boolean {
    return track.manual || track.answered_badly >= LANE_HELD_THROUGH_ATTEMPT;
  }

  pushStarts(
    node: number,
    instance_id: string,
    delivery_id: string,
    label: number,
    attempt: number,
    url: string,
  ): Flight | null {
    // If the store lost an attempt, the node makes the attempt again, and the second attempt waits for its own result.
    this.#counted.delete(`${node} ${delivery_id} ${attempt}`);
    const machine = this.machines.get(instance_id) as Machine;
    const now = this.#now();
    const due_from = now + 1 + this.#clocksApart();
    const term = this.#termOf(instance_id);
    const in_flight = this.#in_flight.get(node) ?? 0;
    const row = this.#operations.deliveries.get(delivery_id, now);
    const lost = this.#lost.get(delivery_id);
    if (lost !== undefined && now < this.#noticed_at) return this.#begin(lost, machine, node, url, attempt);
    const track = row === null ? null : (this.#tracks.get(delivery_id) ?? this.#track(row, label));
    if (row === null || track === null) {
      this.fail(`${instance_id} gets message ${label}, of which nothing is stored`);
      return null;
    }
    const { sent, lane } = track;
    const what = `message ${label} to ${instance_id}`;
    if (sent.label !== label || row.instance_id !== instance_id) this.fail(`${what}: another delivery's id`);
    if (!sent.may.has(instance_id)) this.fail(`${what}: it is not for it`);
    if (track.is_unsure) this.#forgive(track, attempt);
    if (attempt !== track.attempts + 1) this.fail(`${what}: attempt ${attempt} after ${track.attempts}`);
    const flights = machine.in_flight.filter(
      ({ generation, track }) => generation === machine.generation && !this.#lost.has(track.delivery_id),
    );
    // Pushes in hand of a machine that pulls hold no connection, so no limit counts them.
    if (machine.ack_timeout_ms === null) {
      if (in_flight >= this.#settings.max_in_flight) this.fail(`${what}: too many in flight over all`);
      if (flights.length >= this.#settings.instance_concurrency) this.fail(`${what}: too many in flight to it`);
    }
    if (flights.some((flight) => flight.track === track)) this.fail(`${what}: it is in flight already`);
    if (track.end !== null) this.fail(`${what}: again, after its end (${track.end})`);
    if (row.state === 'delivered' || row.state === 'failed') this.fail(`${what}: it is stored as ${row.state}`);
    if (!track.manual && due_from < track.not_before) this.fail(`${what}: ${track.not_before - now} ms too soon`);
    if (machine.ops_open === 0 && now >= this.#noticed_at) {
      if (row.state === 'cancelled') this.fail(`${what}: it was cancelled`);
      if (this.#operations.instances.load([instance_id])[0]?.is_active !== true) this.fail(`${what}: switched off`);
      // The results of one pull are taken one after another, so a push may begin after one result and before a 410 or a
      // failure.
      const pulls = machine.ack_timeout_ms !== null;
      const is_known = !pulls || now > machine.gone_at;
      if (is_known && machine.gone?.ops_total === machine.ops_total && machine.gone.term === term)
        this.fail(`${what}: it had answered 410`);
      if (due_from < machine.not_before && (!pulls || now > machine.backed_off_at))
        this.fail(`${what}: it backs off for another ${machine.not_before - now} ms`);
      const probed = machine.backoff_step > 0 || machine.failures >= DOWN_AFTER_FAILURES;
      if (probed && flights.length > 0) this.fail(`${what}: a second probe`);
    }
    if (!this.isAside(track)) {
      const other = flights.find((flight) => flight.track.lane === lane && !this.isAside(flight.track));
      if (other !== undefined) this.fail(`${what}: beside message ${other.track.sent.label} in one lane`);
      const { head } = lane;
      // A store that went back may have lost the result of an earlier message. Until a node notices that, it goes on with
      // later messages. Then it makes the earlier one again, although a later one is pending.
      const is_again = head !== null && track.is_unsure && track.seq < head.seq;
      if (head !== null && head !== track && !is_again && !this.isAside(head) && head.end === null) {
        const waits = this.#operations.deliveries.get(head.delivery_id, now);
        const expired = waits !== null && now >= head.sent.started_at + this.#expireAfter(head.sent);
        if (waits?.state === 'pending' && !expired) this.fail(`${what}: past message ${head.sent.label} of its lane`);
      }
    }
    if (!track.pushed && !track.manual && !track.was_cancelled) {
      if (track.seq <= lane.first_seq) this.fail(`${what}: seq ${track.seq} after ${lane.first_seq}`);
      lane.first_seq = track.seq;
    }
    if (machine.ops_open === 0) this.#checkNewest(row, track, machine, what);
    this.#countWaits(sent, machine);
    track.pushed = true;
    track.attempts++;
    if (!this.isAside(track)) lane.head = track;
    return this.#begin(track, machine, node, url, attempt);
  }

  #begin(track: Track, machine: Machine, node: number, url: string, attempt: number): Flight {
    const { generation, ops_total, instance_id } = machine;
    const term = this.#termOf(instance_id);
    const started_at = this.#now();
    const flight: Flight = {
      track,
      machine,
      generation,
      node,
      term,
      url,
      started_at,
      ops_total,
      attempt,
      is_requeued: false,
      left: machine.ack_timeout_ms === null,
      pull_id: null,
    };
    machine.in_flight.push(flight);
    track.terms.set(node, term);
    if (machine.ack_timeout_ms === null) this.#in_flight.set(node, (this.#in_flight.get(node) ?? 0) + 1);
    return flight;
  }

  /** Forgets what the checker knows of a delivery, because the store lost it: everything is possible then. */
  #forgive(track: Track, attempt: number): void {
    track.attempts = attempt - 1;
    track.not_before = 0;
    track.end = null;
  }

  /** The machine acted on the push, whatever happens to its response. */
  handled(flight: Flight): void {
    flight.track.handled = true;
  }

  /** A machine gave this many replies to a delivery. */
  replied(delivery_id: string, places: number): void {
    const most = Math.max(places, this.#replies.get(delivery_id)?.most ?? 0);
    this.#replies.set(delivery_id, { most, latest: places });
  }

  /** Checks for each delivery that is stored as delivered that its replies are stored too. */
  checkReplied(settlements: readonly Pick<DeliverySettlement, 'delivery_id'>[]): void {
    if (settlements.every(({ delivery_id }) => !this.#replies.has(delivery_id))) return;
    const stored = this.#storedReplies();
    for (const { delivery_id } of settlements) {
      const { latest = 0 } = this.#replies.get(delivery_id) ?? {};
      const row = this.#operations.deliveries.get(delivery_id, this.#now());
      if (row?.state !== 'delivered' || row.attempts.at(-1)?.detail !== '') continue;
      for (let place = 0; place < latest; place++) {
        const reply = `${delivery_id} ${place}`;
        // A store that went back may have lost the reply, and still accepts the result of the push.
        if (!stored.has(reply) && !this.#lost_replies.has(reply))
          this.fail(`${delivery_id} is delivered, and reply ${place} to it is not stored`);
      }
    }
  }

  /** The times at which each reply was stored, by delivery and place. */
  #storedReplies(): Map<string, number[]> {
    const stored = new Map<string, number[]>();
    for (const meeting_id of this.#meetings) {
      const page = this.#operations.messages.list(meeting_id, { after_seq: 0, limit: 1e9, chars_max: 1e9 });
      for (const { message, accepted_at } of page?.data ?? []) {
        const { to, place } = JSON.parse(message) as { to?: string; place?: number };
        if (to === undefined) continue;
        const key = `${to} ${place}`;
        stored.set(key, [...(stored.get(key) ?? []), accepted_at]);
      }
    }
    return stored;
  }

  /** Checks that each reply is stored only once while its key is kept, and that a machine gave this reply. */
  #checkReplies(): void {
    for (const [key, times] of this.#storedReplies()) {
      const [delivery_id = '', place = ''] = key.split(' ');
      if (Number(place) >= (this.#replies.get(delivery_id)?.most ?? 0)) this.fail(`nobody gave reply ${key}`);
      for (const [i, time] of times.entries()) {
        if (i > 0 && Math.abs(time - (times[i - 1] as number)) < IDEMPOTENCY_MS)
          this.fail(`reply ${key} is stored twice`);
      }
    }
    this.checkReplied([...this.#replies.keys()].map((delivery_id) => ({ delivery_id })));
  }

  /** Notes that an attempt has ended. */
  pushEnds(flight: Flight): void {
    const { machine, node } = flight;
    machine.in_flight = machine.in_flight.filter((other) => other !== flight);
    machine.had_in_hand_at = this.#now();
    if (machine.ack_timeout_ms === null) this.#in_flight.set(node, (this.#in_flight.get(node) ?? 1) - 1);
  }

  // ── machines that pull ────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * A pull begins to wait at the node that delivers.
   *
   * @param pull the number of the node, and the name of the pull
   */
  pullWaits(machine: Machine, pull: string): void {
    const now = this.#now();
    const { waiting_pulls, unpulled_since, had_in_hand_at, in_flight } = machine;
    const since = Math.max(unpulled_since, had_in_hand_at);
    const is_idle = waiting_pulls.size === 0 && in_flight.length === 0;
    if (is_idle && now - since >= AWAY_MS) machine.away = { since, until: now };
    waiting_pulls.add(pull);
  }

  /** Notes that a pull no longer waits. */
  pullEnds(machine: Machine, pull: string): void {
    if (machine.waiting_pulls.delete(pull)) machine.unpulled_since = this.#now();
  }

  /** Notes that a whole response with this push left a node. */
  pushLeft(node: number, instance_id: string, delivery_id: string, attempt: number): void {
    for (const flight of this.machines.get(instance_id)?.in_flight ?? [])
      if (flight.node === node && flight.track.delivery_id === delivery_id && flight.attempt === attempt)
        flight.left = true;
  }

  /** Notes that a machine acted on the push of a delivery. */
  handledDelivery(delivery_id: string): void {
    const track = this.#tracks.get(delivery_id) ?? this.#lost.get(delivery_id);
    if (track !== undefined) track.handled = true;
  }

  /** Notes that a push is in the response that a node made for a pull. */
  handedOut(node: number, { delivery_id, attempt }: HandedOut, machine: Machine, pull_id: string): void {
    for (const flight of machine.in_flight) {
      if (flight.node !== node || flight.track.delivery_id !== delivery_id || flight.attempt !== attempt) continue;
      flight.pull_id = pull_id;
      // After an operation or a fault, a node may hand out a push again.
      if (machine.ops_open > 0 || machine.ops_total !== flight.ops_total) continue;
      const under = `${node} ${flight.term} ${flight.ops_total} ${this.disturbed_at}`;
      this.#handed_out.set(`${delivery_id} ${attempt} ${pull_id}`, under);
    }
  }

  /**
   * Called when the node that delivers has a response for a repeated pull, which has the name of the first request. The
   * node must no longer wait for results of pushes that it handed out to the first request.
   */
  pulledAgain(node: number, instance_id: string, pull_id: string): void {
    for (const { track, attempt, ...flight } of this.machines.get(instance_id)?.in_flight ?? []) {
      if (flight.node === node && flight.pull_id === pull_id)
        this.fail(`message ${track.sent.label} to ${instance_id}, attempt ${attempt}: in hand of a lost response`);
    }
  }

  /** Notes that a machine repeats a pull under the same name, or did not get the response of the first request. */
  repeatsPull(pull_id: string): void {
    this.#repeated_pulls.add(pull_id);
  }

  /**
   * Checks a push that arrived at a machine: the same attempt may arrive again only when a response was lost, or came
   * after the machine had repeated its request.
   */
  received({ delivery_id, attempt }: HandedOut, pull_id: string): void {
    const key = `${delivery_id} ${attempt}`;
    const under = this.#handed_out.get(`${key} ${pull_id}`);
    const before = this.#received.get(key);
    const is_lost = before === undefined || [before.pull_id, pull_id].some((each) => this.#repeated_pulls.has(each));
    if (under !== undefined && before?.under === under && !is_lost && this.#noticed_at === 0)
      this.fail(`${key} arrives again as the same attempt, and nothing was lost`);
    this.#received.set(key, { under, pull_id });
  }

  /**
   * Whether a lane waits for the result of a push that never arrived, because the response with it was lost after it
   * left the node. The node cannot know that before the deadline of the push.
   */
  #waitsForLost({ in_flight }: Machine, meeting_id: string): boolean {
    return in_flight.some(
      ({ track, attempt }) =>
        track.lane.meeting_id === meeting_id && !this.#received.has(`${track.delivery_id} ${attempt}`),
    );
  }

  /** Notes that a machine is about to report the result of an attempt. */
  reports(delivery_id: string, attempt: number): void {
    this.#reported.add(`${delivery_id} ${attempt}`);
  }

  /** Notes that a node confirmed a result as counted. */
  saysCounted(node: number, delivery_id: string, attempt: number): void {
    this.#counted.add(`${node} ${delivery_id} ${attempt}`);
  }

  /** Notes that a push was given back, so its attempt was not made. */
  takenBack(flight: Flight): void {
    const { machine, track } = flight;
    if (!machine.in_flight.includes(flight)) return;
    machine.in_flight = machine.in_flight.filter((other) => other !== flight);
    machine.had_in_hand_at = this.#now();
    if (this.#tracks.get(track.delivery_id) === track) track.attempts = flight.attempt - 1;
    this.#taken_back.set(track.delivery_id, (this.#taken_back.get(track.delivery_id) ?? 0) + 1);
  }

  /**
   * Checks the result of a push in hand: a machine reported it for this attempt, or it is a timeout. A timeout comes
   * before the deadline only when the response with the push was lost several times.
   *
   * @param was_away whether its node was paused at some time, perhaps between the hand-out and the response
   */
  inHandEnds(flight: Flight, { outcome, detail }: PushResult, was_away: boolean): void {
    const { machine, track, attempt, node } = flight;
    const what = `message ${track.sent.label} to ${machine.instance_id}, attempt ${attempt}`;
    if (outcome === 'timeout') {
      const rest_ms = flight.started_at + (machine.ack_timeout_ms ?? 0) - this.#now();
      // Losses of earlier attempts count too: something on the way may cut every response with this push.
      const losses = 1 + (this.#taken_back.get(track.delivery_id) ?? 0);
      const is_lost = detail === LOST && losses >= LOSSES_MAX;
      if (rest_ms > 0 && !is_lost) this.fail(`${what}: timed out ${rest_ms} ms too soon`);
      if (!flight.left && !was_away && !is_lost) this.fail(`${what}: timed out, and never left its node`);
      if (this.#counted.has(`${node} ${track.delivery_id} ${attempt}`))
        this.fail(`${what}: timed out, and its result had counted`);
    } else if (!this.#reported.has(`${track.delivery_id} ${attempt}`))
      this.fail(`${what}: has a result that nobody reported`);
    this.pushEnds(flight);
  }

  /** Checks writes for machines that pull: only a push that was in hand may use up a retry or lengthen a back-off. */
  checkSpent(settlements: readonly DeliverySettlement[], healths: readonly HealthSettlement[]): void {
    const is_sure = this.#now() >= this.#noticed_at;
    for (const { delivery_id, attempt_count, epoch } of settlements) {
      const track = this.#tracks.get(delivery_id);
      if (track?.is_unsure === true || !is_sure || this.#lost.has(delivery_id)) continue;
      const machine = track?.lane.machine;
      if (machine !== undefined && (machine.ack_timeout_ms === null || this.#isStale(machine, epoch))) continue;
      if (attempt_count > (track?.attempts ?? 0))
        this.fail(`${delivery_id}: ${attempt_count} attempts are written, and nobody had it in hand so often`);
    }
    for (const { instance_id, backoff_step, consecutive_failures } of healths) {
      const machine = this.machines.get(instance_id);
      if (machine === undefined || machine.ack_timeout_ms === null) continue;
      if (Math.max(backoff_step, consecutive_failures) > machine.failed_ever)
        this.fail(`${instance_id} backs off, and failed only ${machine.failed_ever} times`);
    }
  }

  #isStale({ instance_id }: Machine, epoch: number): boolean {
    return epoch > 0 && epoch !== this.#termOf(instance_id);
  }

  /**
   * Called when the node gets the result of an attempt. The result does not count when another node has the instance
   * now.
   *
   * @param retry_after_ms the pause that the machine asked for, if its response allows that
   */
  onResult(flight: Flight, result: PushResult, retry_after_ms: number): void {
    const { track, machine, term } = flight;
    const now = this.#now();
    if (result.outcome !== 'ok') machine.failed_ever++;
    if (term !== this.#termOf(machine.instance_id)) return;
    const { outcome } = result;
    const { reached } = OUTCOMES[outcome];
    if (!flight.is_requeued) this.#noteResult(track, result, retry_after_ms);

    if (outcome === 'gone') {
      machine.gone_unsettled = true;
      machine.gone_at = now;
      this.#review(machine);
      if (flight.url === machine.url && flight.ops_total === machine.ops_total && machine.ops_open === 0)
        machine.gone = { ops_total: machine.ops_total, term };
    }
    if (flight.url !== machine.url) return;
    if (outcome === 'ok') {
      machine.well_at = now;
      machine.failures = 0;
      machine.backoff_step = 0;
      machine.not_before = 0;
      return;
    }
    // Somebody began to remove the instance during the attempt. If the removal failed, this failure may have begun a
    // back-off.
    if (flight.generation !== machine.generation) {
      machine.failed_at = now;
      return;
    }
    // Of several pushes that time out together, and of one that began before a success, the engine learns nothing.
    if (result.is_stale === true) return;
    machine.failures++;
    const failed_meanwhile = flight.started_at <= machine.failed_at;
    machine.failed_at = now;
    const backs_off = !reached || machine.failures >= DOWN_AFTER_FAILURES;
    // An attempt that was in flight when the back-off began does not lengthen the back-off.
    if (!backs_off || failed_meanwhile || flight.started_at < machine.not_before) return;
    if (flight.started_at <= machine.lifted_at) return;
    const delay_ms = Math.min(BACKOFF_FIRST_MS * 2 ** machine.backoff_step, BACKOFF_MAX_MS);
    machine.not_before = now + Math.floor(delay_ms * SHORTEST);
    machine.backed_off_at = now;
    machine.backoff_step++;
  }

  #noteResult(track: Track, result: PushResult, retry_after_ms: number): void {
    track.last = result;
    const { outcome } = result;
    if (outcome === 'ok') track.end = 'ok';
    else if (outcome === 'gone' || outcome === 'not_200') track.end = 'failed';
    else if (OUTCOMES[outcome].reached) {
      const pause_ms = this.#settings.retry_schedule_ms[track.answered_badly];
      track.answered_badly++;
      if (pause_ms === undefined) track.end = 'failed';
      else {
        const asked_ms = Math.min(retry_after_ms, RETRY_AFTER_MS_MAX);
        track.not_before = this.#now() + Math.max(Math.floor(pause_ms * SHORTEST), asked_ms);
      }
    }
    if ((track.end !== null || this.isAside(track)) && track.lane.head === track) track.lane.head = null;
  }

  // ── a store that goes back ────────────────────────────────────────────────────────────────────────────────────────

  /** The stored deliveries, with the labels of their messages, and the stored replies. */
  stored() {
    const deliveries = this.#rows().map((row) => ({ row, label: this.#labelOf(row) }));
    return { deliveries, replies: [...this.#storedReplies().keys()] };
  }

  /**
   * Called when the store went back to an earlier state. Everything that was stored later is lost, also messages whose
   * senders got a 201.
   */
  wentBack(before: ReturnType<Checker['stored']>, noticed_at: number): void {
    this.#noticed_at = noticed_at;
    const now = this.#now();
    const messages = new Set<string>();
    for (const meeting_id of this.#meetings) {
      const page = this.#operations.messages.list(meeting_id, { after_seq: 0, limit: 1e9, chars_max: 1e9 });
      for (const { message_id } of page?.data ?? []) messages.add(message_id);
    }
    const replies = this.#storedReplies();
    for (const reply of before.replies) if (!replies.has(reply)) this.#lost_replies.add(reply);
    for (const { row, label } of before.deliveries) {
      if (messages.has(row.message_id)) {
        const is_lost = this.#operations.deliveries.get(row.delivery_id, now)?.state === 'pending';
        const cancelled =
          row.state === 'cancelled' && is_lost ? (this.#tracks.get(row.delivery_id) ?? this.#track(row, label)) : null;
        if (cancelled !== null) cancelled.was_cancelled = true;
        continue;
      }
      const track = this.#tracks.get(row.delivery_id) ?? this.#track(row, label);
      if (track === null) continue;
      this.#tracks.delete(row.delivery_id);
      this.#lost.set(row.delivery_id, track);
      if (track.lane.head === track) track.lane.head = null;
    }
    for (const sent of this.sent) {
      if (sent.response === null || messages.has(sent.response.message_id)) continue;
      sent.response = null;
      sent.unknown = true;
    }
    for (const lane of this.#lanes.values()) lane.first_seq = 0;
    for (const track of this.#tracks.values()) {
      const row = this.#operations.deliveries.get(track.delivery_id, now);
      if (track.pushed) track.lane.first_seq = Math.max(track.lane.first_seq, track.seq);
      if (row?.state !== 'pending') continue;
      track.is_unsure = true;
      track.end = null;
      if (track.lane.head === track) track.lane.head = null;
    }
    for (const machine of this.machines.values()) {
      const was_on = machine.on;
      this.look(machine);
      // The store lost the result of a 410 of the machine. The nodes that know of the 410 may forget it.
      if (machine.on === was_on && machine.gone === null && !machine.gone_unsettled) continue;
      machine.gone = null;
      machine.gone_unsettled = true;
      machine.gone_at = now;
      this.#review(machine);
    }
    this.allNoticed();
  }

  /** Called when all nodes know that the store went back. Back-offs that the store lost may be over. */
  allNoticed(): void {
    for (const machine of this.machines.values()) {
      machine.not_before = 0;
      machine.backoff_step = 0;
      machine.failures = 0;
      machine.lifted_at = this.#now();
    }
  }

  // ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Called when a process ended. Its connections are closed, and callers that wait get no response. */
  nodeEnds(node: number, sends: readonly Sent[]): void {
    this.disturbed_at = this.#now();
    this.#in_flight.delete(node);
    for (const machine of this.machines.values()) {
      machine.in_flight = machine.in_flight.filter((flight) => flight.node !== node);
      for (const pull of machine.waiting_pulls) if (pull.startsWith(`${node} `)) this.pullEnds(machine, pull);
    }
    for (const sent of sends) sent.unknown = true;
  }

  /** Called when the calls of a node that ended arrive no longer: from now on, nobody new gets its messages. */
  sendsEnd(sends: readonly Sent[]): void {
    for (const sent of sends) sent.open--;
  }

  /**
   * Called when nobody will learn whether an operation was done. The stored back-off does not show that either, because
   * the node that delivers may know of responses that a failing disk has not stored yet.
   */
  opLost(machine: Machine): void {
    this.markManual(machine.instance_id);
    machine.url = this.#operations.instances.load([machine.instance_id])[0]?.webhook_url ?? machine.url;
    this.opEnds(machine, this.#now(), false);
  }

  /** Checks a node that releases instances: no attempt of these is in flight, and all their results are stored. */
  givenBack(concerns: (machine: Machine) => boolean): void {
    for (const machine of this.machines.values()) {
      if (concerns(machine) && machine.in_flight.length > 0)
        this.fail(`${machine.instance_id} is given back with attempts in progress`);
    }
    for (const track of this.#tracks.values()) {
      if (!concerns(track.lane.machine) || track.end === null) continue;
      if (this.#operations.deliveries.get(track.delivery_id, this.#now())?.state === 'pending')
        this.fail(`message ${track.sent.label}: it was given back, and what became of it was not written`);
    }
  }

  /**
   * Called when a node no longer has certain instances. The next node knows only what is stored.
   *
   * @param clean whether all results must be stored
   * @param stepped whether the next node has another steady clock
   */
  onRebalance(concerns: (machine: Machine) => boolean, clean: boolean, stepped: boolean): void {
    for (const machine of this.machines.values()) {
      if (!concerns(machine)) continue;
      const { instance_id } = machine;
      // An attempt to a webhook takes at most 5 s, and a lease lasts for 15 s, so the attempt ends before the lease. A
      // push in hand may take longer than the lease. Its node learns of the lost partition when it renews. Until then
      // the next node may hand out the same push again.
      if (machine.ack_timeout_ms !== null) machine.in_flight = [];
      if (machine.in_flight.length > 0) this.fail(`${instance_id} is handed over with attempts in progress`);
      for (const lane of this.#lanes.values()) if (lane.machine === machine) lane.head = null;
      for (const track of this.#tracks.values())
        if (track.lane.machine === machine) this.#handTrack(track, clean, stepped);
      machine.gone_unsettled = false;
      machine.gone = null;
      this.#readAgain(machine, stepped);
      this.look(machine);
    }
  }

  /** Sets what the next node will know of a delivery. */
  #handTrack(track: Track, clean: boolean, stepped: boolean): void {
    const row = this.#operations.deliveries.get(track.delivery_id, this.#now());
    if (stepped) track.not_before = 0;
    if (row === null) return;
    if (clean) {
      if (row.state === 'pending' && track.end !== null)
        this.fail(`message ${track.sent.label}: what became of it was forgotten`);
    } else if (row.attempt_count < track.attempts) {
      // The results of the last attempts were lost, so the next node makes these attempts again. A delivery that has
      // expired stays so.
      if (row.state === 'pending' || row.reason === 'expired') track.end = null;
      track.not_before = 0;
      const badly = row.attempts.filter(({ outcome }) => OUTCOMES[outcome].reached && outcome !== 'ok').length;
      track.answered_badly = track.manual ? 0 : badly;
      track.attempts = row.attempt_count;
    }
    if (row.state !== 'pending' || this.isAside(track)) return;
    const { head } = track.lane;
    if (head === null || track.seq < head.seq) track.lane.head = track;
  }

  #readAgain(machine: Machine, stepped: boolean): void {
    const row = this.#operations.instances.load([machine.instance_id])[0];
    machine.failures = row?.consecutive_failures ?? 0;
    machine.backoff_step = row?.backoff_step ?? 0;
    // An earlier process with another steady clock may have written the row, so the row may have a time that is too
    // late. No back-off is longer than BACKOFF_MAX_MS.
    machine.not_before = stepped ? 0 : Math.min(row?.backoff_until ?? 0, this.#now() + BACKOFF_MAX_MS * SHORTEST);
    machine.url = row?.webhook_url ?? machine.url;
  }

  /** Checks that the result of an attempt that began in an earlier term changes nothing. */
  watchSettling<Result>(node: number, settlements: readonly DeliverySettlement[], settle: () => Result): Result {
    const stale = settlements.flatMap(({ delivery_id, reason, epoch }) => {
      const track = this.#tracks.get(delivery_id);
      // A delivery that is superseded or expires needs no attempt of this node, so its term is the epoch of the
      // settlement.
      const is_judged = (reason === 'superseded' || reason === 'expired') && epoch > 0;
      const term = is_judged ? epoch : track?.terms.get(node);
      if (track === undefined || term === undefined) return [];
      if (term === this.#termOf(track.lane.machine.instance_id)) return [];
      return [{ track, before: this.#stored(delivery_id) }];
    });
    const result = settle();
    for (const { track, before } of stale) {
      if (this.#stored(track.delivery_id) !== before)
        this.fail(`message ${track.sent.label} to ${track.lane.machine.instance_id}: a stale settlement landed`);
    }
    return result;
  }

  /**
   * The stored fields of a delivery without `waiting_for`, which depends on the health of the instance. The same call
   * also writes this health.
   */
  #stored(delivery_id: string): string {
    return JSON.stringify({ ...this.#operations.deliveries.get(delivery_id, this.#now()), waiting_for: null });
  }

  /** Called a while after the response to a send: by then other nodes must have taken over the work of a lost node. */
  checkNotified(sent: Sent, within_ms: number, concerns: (machine: Machine) => boolean): void {
    // The store lost the message.
    if (sent.response === null) return;
    for (const machine of this.machines.values()) {
      if (!machine.untouched || !concerns(machine) || !sent.must.has(machine.instance_id)) continue;
      if (machine.ack_timeout_ms !== null && this.#waitsForLost(machine, sent.meeting_id)) continue;
      const row = this.#rows(machine.instance_id).find(({ message_id }) => message_id === sent.response?.message_id);
      if (row?.reason === 'dropped' || row?.reason === 'superseded') continue;
      if (row === undefined || !this.#tracks.has(row.delivery_id))
        this.fail(`message ${sent.label} to ${machine.instance_id}: nobody took it over within ${within_ms} ms`);
    }
  }

  /**
   * Called a while after the response to a send: machines that are always well must have the message.
   *
   * @param call_ms_max how long a call of the store takes at most
   */
  checkPrompt(sent: Sent, sent_at: number, answered_at: number, call_ms_max: number): void {
    if (this.disturbed_at >= sent_at || sent.response === null) return;
    if (answered_at - sent_at > PROMPT_MS + BATCHES_AWAITED * call_ms_max)
      this.fail(`message ${sent.label}: its sender waited for too long`);
    for (const machine of this.machines.values()) {
      if (!machine.untouched || machine.ack_timeout_ms !== null || !sent.must.has(machine.instance_id)) continue;
      const row = this.#rows(machine.instance_id).find(({ message_id }) => message_id === sent.response?.message_id);
      if (row?.reason === 'dropped') continue;
      if (row === undefined || !this.#tracks.has(row.delivery_id))
        this.fail(`message ${sent.label} to ${machine.instance_id}: not sent ${PROMPT_MS} ms after it was accepted`);
    }
  }

  #rows(instance_id?: string): DeliveryRow[] {
    const filter = instance_id === undefined ? {} : { instance_id };
    return this.#operations.deliveries.list({ ...filter, limit: 1e9 }, this.#now()).data;
  }

  /** Called at the end of the world, when no more events come. */
  checkEnd(): void {
    const rows = Map.groupBy(this.#rows(), ({ message_id }) => message_id);
    const stored = new Map<number, string>();
    let messages = 0;
    for (const meeting_id of this.#meetings) {
      const page = this.#operations.messages.list(meeting_id, { after_seq: 0, limit: 1e9, chars_max: 1e9 });
      for (const [i, { message_id, seq, message }] of (page?.data ?? []).entries()) {
        const { n } = JSON.parse(message) as { n?: number };
        if (seq !== i + 1) this.fail(`${meeting_id} has no seq ${i + 1}`);
        if (n === undefined) continue;
        if (stored.has(n)) this.fail(`message ${n} is stored twice`);
        stored.set(n, message_id);
        messages++;
      }
    }
    for (const sent of this.sent) {
      const message_id = stored.get(sent.label);
      const of_message = message_id === undefined ? [] : (rows.get(message_id) ?? []);
      if (sent.response !== null) {
        if (message_id !== sent.response.message_id) this.fail(`message ${sent.label} was accepted and is lost`);
        if (of_message.length !== sent.response.deliveries_queued)
          this.fail(`message ${sent.label}: the books do not balance`);
      } else if (sent.refused && !sent.unknown && message_id !== undefined) {
        this.fail(`message ${sent.label} was refused and is stored`);
      }
      if (message_id === undefined) continue;
      const reached = new Set(of_message.map(({ instance_id }) => instance_id));
      if (reached.size !== of_message.length) this.fail(`message ${sent.label}: two deliveries to one instance`);
      for (const instance_id of reached)
        if (!sent.may.has(instance_id))
          this.fail(`message ${sent.label} was queued for ${instance_id}, which was not there`);
      for (const instance_id of sent.response === null ? [] : sent.must)
        if (!reached.has(instance_id)) this.fail(`message ${sent.label} was not queued for ${instance_id}`);
      for (const row of of_message) this.#checkEndOf(row, sent);
    }
    if (messages !== stored.size) this.fail('more messages are stored than were sent');
    this.#checkReplies();
    this.#checkPairs();
  }

  #checkCancelled(row: DeliveryRow, sent: Sent, what: string): void {
    switch (row.reason) {
      case 'instance_deleted':
        if (this.machines.get(row.instance_id)?.removed !== true) this.fail(`${what}: cancelled without a reason`);
        return;
      case 'dropped': {
        const is_dropped = this.#drops.some(({ of, until }) => {
          if (of.instance_id !== undefined && of.instance_id !== row.instance_id) return false;
          if (of.meeting_id !== undefined && of.meeting_id !== row.meeting_id) return false;
          return until === null || row.created_at <= until;
        });
        if (!is_dropped) this.fail(`${what}: nobody dropped it`);
        return;
      }
      case 'hop_limit':
      case 'pair_limit':
        if (sent.from === null) this.fail(`${what}: a person says it, and it was stopped`);
        return;
      case 'superseded':
        if (!this.#isSuperseded(row, sent)) this.fail(`${what}: superseded by nothing`);
        return;
      default:
        this.fail(`${what}: cancelled as ${row.reason}`);
    }
  }

  /**
   * Whether a newer message of the lane replaced this delivery. Only a message of a person replaces a message of a
   * person.
   */
  #isSuperseded(row: DeliveryRow, { from }: Sent): boolean {
    const { instance_id, meeting_id, seq } = row;
    // A node may write the cancellation after the store went back, and lost the newer message.
    const was_lost = [...this.#lost.values()].some(({ lane, sent, seq: newer }) => {
      if (lane.machine.instance_id !== instance_id || sent.meeting_id !== meeting_id || newer <= seq) return false;
      return from !== null || sent.from === null;
    });
    if (was_lost) return true;
    return this.#rows(instance_id).some((other) => {
      if (other.meeting_id !== meeting_id || other.seq <= seq || other.reason === 'superseded') return false;
      return from !== null || this.#sentOf(other)?.from === null;
    });
  }

  #sentOf(row: DeliveryRow): Sent | undefined {
    const label = this.#labelOf(row);
    return this.sent.find((sent) => sent.label === label);
  }

  /**
   * Checks that the first push to a machine that was away is the newest message that waited. A newer message of an
   * agent does not replace a message of a person.
   */
  #checkNewest(row: DeliveryRow, track: Track, machine: Machine, what: string): void {
    if (!this.is_latest || this.isAside(track) || track.answered_badly > 0) return;
    if (machine.backoff_step === 0 && !this.#waitedForPull(row, machine)) return;
    const newer = this.#rows(row.instance_id).find((other) => {
      if (other.meeting_id !== row.meeting_id || other.seq <= row.seq) return false;
      if (other.state !== 'pending' || other.attempt_count > 0) return false;
      const sent = this.#sentOf(other);
      if (sent === undefined || sent.response === null || this.#now() - sent.started_at < SEEN_MS) return false;
      // A message supersedes no message that expires later. A node counts the time from the beginning of a send, and the
      // send may have waited while its node was paused.
      if (sent.began_at < track.sent.started_at) return false;
      return track.sent.from !== null || sent.from === null;
    });
    if (newer !== undefined) this.fail(`${what}: it was away, and seq ${newer.seq} is newer`);
  }

  /**
   * Whether a delivery certainly waited while its machine did not pull. That is certain when the delivery was at the
   * head of its lane, and its node was well all the time.
   */
  #waitedForPull({ instance_id, meeting_id, seq, created_at }: DeliveryRow, machine: Machine): boolean {
    const { away, lifted_at } = machine;
    if (away === null || this.#settings.max_in_flight < 1_000 || !this.#isUndisturbed()) return false;
    if (Math.max(this.disturbed_at, lifted_at) >= created_at) return false;
    const since = Math.max(away.since, created_at);
    if (away.until - since < AWAY_MS) return false;
    return this.#rows(instance_id).every((other) => {
      if (other.meeting_id !== meeting_id || other.seq >= seq || other.reason === 'superseded') return true;
      return (other.settled_at ?? Infinity) <= since;
    });
  }

  /**
   * Checks that no delivery is superseded for a machine that is always well and pulls all the time: it was never away.
   */
  checkLeftOut(settlements: readonly DeliverySettlement[]): void {
    for (const { delivery_id, reason } of settlements) {
      if (reason !== 'superseded' || !this.#isUndisturbed() || this.#now() < this.#noticed_at) continue;
      const row = this.#operations.deliveries.get(delivery_id, this.#now());
      const machine = row === null ? undefined : this.machines.get(row.instance_id);
      if (row === null || machine?.untouched !== true || machine.ack_timeout_ms === null) continue;
      if (row.created_at > this.disturbed_at + WELL_MS)
        this.fail(`${delivery_id} to ${row.instance_id}: superseded, and its machine was there`);
    }
  }

  // ── agents ────────────────────────────────────────────────────────────────────────────────────────────────────────

  /** Called when the store has ended deliveries without a result: somebody dropped them, or they had expired. */
  ended(): void {
    for (const track of this.#tracks.values()) {
      const row = this.#operations.deliveries.get(track.delivery_id, this.#now());
      if (row?.reason === 'dropped' || row?.reason === 'expired') track.has_ended = true;
    }
  }

  dropStarts(of: Partial<LaneKey>, since: number): Drop {
    const drop: Drop = { of, since, until: null };
    this.#drops.push(drop);
    return drop;
  }

  /**
   * Checks that no push has more hops than the limit, except for a delivery that somebody queued again by hand.
   */
  checkHops(flight: Flight | null, hops: number): void {
    const { hop_limit } = this.#settings;
    if (flight === null || hop_limit === 0 || hops <= hop_limit || flight.track.manual) return;
    this.fail(`message ${flight.track.sent.label} to ${flight.machine.instance_id}: hop ${hops} of ${hop_limit}`);
  }

  /**
   * Checks that no pair exceeds its limit, whichever nodes judged its messages. A decision depends only on earlier
   * messages and the times of their acceptance. Both are stored, so a takeover or a restart does not allow more
   * messages. Also checks that no pair is stopped before its limit.
   */
  #checkPairs(): void {
    const { pair_limit } = this.#settings;
    if (pair_limit === 0) return;
    const lanes = Map.groupBy(this.#rows(), ({ instance_id, meeting_id }) => `${instance_id} ${meeting_id}`);
    for (const rows of lanes.values()) {
      // For each sender, the messages that certainly count, and those that may count.
      const pairs = new Map<string, { went: number[]; may: number[] }>();
      // A store that went back may have lost the result of one delivery, and still have the result of a later delivery.
      // Then the guard judges the earlier delivery again, and counts only the deliveries before it. The later delivery
      // is settled, so the guard does not judge it again.
      let is_forgotten = false;
      for (const row of rows.toSorted((a, b) => a.seq - b.seq)) {
        const is_skipped = is_forgotten && (row.settled_at ?? Infinity) <= this.#noticed_at;
        is_forgotten ||= this.#tracks.get(row.delivery_id)?.is_unsure === true;
        const label = this.#labelOf(row);
        const from = this.sent.find((sent) => sent.label === label)?.from ?? null;
        if (from === null) continue;
        const pair = pairs.get(from) ?? { went: [], may: [] };
        pairs.set(from, pair);
        const what = `message ${label} from ${from} to ${row.instance_id}`;
        const track = this.#tracks.get(row.delivery_id);
        const is_stopped = row.state === 'cancelled' && row.reason === 'pair_limit';
        const at = row.created_at;
        if (is_stopped && this.#noticed_at === 0 && !this.#isOver(pair.may, at))
          this.fail(`${what}: stopped, and it had not said too much`);
        if (track?.pushed === true && !track.manual && !is_skipped && row.state !== 'cancelled') {
          if (this.#isOver(pair.went, at)) this.fail(`${what}: more than ${pair_limit} within a window`);
          pair.went.push(at);
        }
        if (row.state !== 'cancelled' || track?.pushed === true) pair.may.push(at);
      }
    }
  }

  #isOver(times: readonly number[], at: number): boolean {
    const { pair_limit, pair_window_s } = this.#settings;
    if (times.length < pair_limit) return false;
    const last = times.at(-1) as number;
    const window_ms = pair_window_s * 1_000;
    return last - (times.at(-pair_limit) as number) < window_ms && at - last < window_ms;
  }

  #expireAfter({ expires_in_ms }: Sent): number {
    return Math.min(expires_in_ms ?? Infinity, this.#settings.expire_after_ms);
  }

  #checkEndOf(row: DeliveryRow, sent: Sent): void {
    const track = this.#tracks.get(row.delivery_id);
    const what = `message ${sent.label} to ${row.instance_id}`;
    switch (row.state) {
      case 'pending':
        return this.fail(`${what}: still pending (${row.waiting_for})`);
      case 'delivered':
        if (track?.handled !== true) this.fail(`${what}: stored as delivered, and never received`);
        return;
      case 'cancelled':
        return this.#checkCancelled(row, sent, what);
      case 'failed': {
        if (row.reason === 'expired') {
          if (this.#real() < sent.began_at + this.#expireAfter(sent)) this.fail(`${what}: expired too early`);
          if (track?.end === 'ok') this.fail(`${what}: a machine took it, and it is stored as expired`);
        } else if (row.reason === 'exhausted') {
          if (!track?.manual && row.attempts.length <= this.#settings.retry_schedule_ms.length)
            this.fail(`${what}: exhausted after ${row.attempts.length} attempts`);
        } else if (track?.last?.outcome !== row.reason) this.fail(`${what}: failed as ${row.reason}, and was not`);
      }
    }
  }
}

/** Whether a message is not for an instance: it is for another instance, or the instance's own agent says it. */
function isBesides({ target, from }: Sent, instance_id: string): boolean {
  return target === null ? from === instance_id : target !== instance_id;
}

/** How soon machines that are always well must have a message. Each message before it in the lane adds time. */
export function promptWithin(messages_before: number, answer_ms_max: number): number {
  return PROMPT_MS + messages_before * answer_ms_max * 2;
}
