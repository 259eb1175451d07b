/**
 * Compares the responses that senders got with the pushes that machines got and with what the service reports, in the
 * manner of Jepsen (https://jepsen.io). The checker knows only the promises of Convoke, not how Convoke works.
 */

/** `ok`: 201. `failed`: any other response, or no connection. `unknown`: no complete response arrived. */
export type SendResult = 'ok' | 'failed' | 'unknown';

export interface Sent {
  /** The number in the message. No other message has it. */
  number: number;
  meeting_id: string;
  result: SendResult;
  message_id: string | null;
  seq: number | null;
  /** The URL that accepted the first try of this send, and when that try began; null when it was not accepted. */
  accepted: { url: string; from_ms: number } | null;
}

/** One POST, as a machine got it. */
export interface Arrival {
  at_ms: number;
  answered_ms: number;
  /** The address of the sending process. Each process sends from its own address. */
  sender: string;
  instance_id: string;
  meeting_id: string;
  webhook_id: string;
  message_id: string;
  seq: number;
  attempt: number;
  number: number;
}

/** A process that ended, or that for a while could not store the results of its pushes. */
export interface Ending {
  /** The address from which the process sends its pushes. */
  sender: string;
  /** The URL at which the process accepts messages. */
  url: string;
  /** From then on the process stored nothing. Another process may accept later messages at the same URL. */
  from_ms: number;
  /**
   * A push that this process sent until then may arrive again: from another process at any time, from this process only
   * after that time. Infinity for a process that ended: it sends no more pushes, so no limit is necessary.
   */
  to_ms: number;
}

/** A message in the history of its meeting. */
export interface Stored {
  meeting_id: string;
  message_id: string;
  seq: number;
  number: number;
}

export interface Record {
  sent: Sent[];
  received: Arrival[];
  stored: Stored[];
  /** The members of each meeting, which do not change during the run. */
  members: Map<string, string[]>;
  /** The number of deliveries in each state, at the end. */
  deliveries: { [state: string]: number };
  /** After each of these endings, pushes that were in flight may arrive again. */
  endings: Ending[];
}

export interface Findings {
  /** Messages that got a 201, but that not every member got. */
  lost: string[];
  /** Messages that only some members got, or that a member got although the sender got a failure. */
  half: string[];
  /** Pushes that arrived at a machine outside the meeting, or whose message nobody sent. */
  misdirected: string[];
  /** Sends that were stored more than once. */
  doubled: string[];
  /** First attempts that arrived after the first attempt of a later message of their lane, and lanes with a gap. */
  disordered: string[];
  /** Pushes that arrived again, although they were not in flight when a process ended. */
  repeated: string[];
  /** Deviations from: accepted × recipients = delivered + failed + cancelled + pending, and nothing is pending. */
  books: string[];
}

export interface Figures {
  accepted: number;
  unknown: number;
  unknown_stored: number;
  received: number;
  /** How many pushes arrived again because they were in flight when a process ended. */
  again: number;
  /** How many pushes arrived again because of the same ending, at most. */
  again_per_end_max: number;
  /**
   * For pushes that arrived again: the longest time between the response to the first arrival and `storedUntil`, the
   * time up to which the sending process had stored its results.
   */
  again_age_ms_max: number;
}

export function check(record: Record): { findings: Findings; figures: Figures } {
  const again = repetitionsOf(record);
  const unknown = record.sent.filter(({ result }) => result === 'unknown');
  const stored = new Set(record.stored.map(({ number }) => number));
  return {
    findings: {
      lost: lostOf(record),
      half: halfOf(record),
      misdirected: misdirectedOf(record),
      doubled: doubledOf(record),
      disordered: disorderedOf(record),
      repeated: again.repeated,
      books: booksOf(record),
    },
    figures: {
      accepted: record.sent.filter(({ result }) => result === 'ok').length,
      unknown: unknown.length,
      unknown_stored: unknown.filter(({ number }) => stored.has(number)).length,
      received: record.received.length,
      again: again.ages_ms.length,
      again_per_end_max: Math.max(0, ...again.per_end.values()),
      again_age_ms_max: Math.max(0, ...again.ages_ms),
    },
  };
}

/** The machines that got each message, by the number in the message. */
function machinesByNumber({ received }: Record): Map<number, Set<string>> {
  const by_number = new Map<number, Set<string>>();
  for (const { number, instance_id } of received) {
    const known = by_number.get(number);
    if (known === undefined) by_number.set(number, new Set([instance_id]));
    else known.add(instance_id);
  }
  return by_number;
}

function lostOf(record: Record): string[] {
  const by_number = machinesByNumber(record);
  const stored = new Map(record.stored.map((message) => [message.message_id, message]));
  return record.sent.flatMap(({ result, number, meeting_id, message_id, seq }) => {
    if (result !== 'ok') return [];
    const missing = (record.members.get(meeting_id) ?? []).filter((id) => !by_number.get(number)?.has(id));
    const kept = stored.get(message_id ?? '');
    return [
      ...missing.map((id) => `${number} in ${meeting_id} was accepted, and ${id} never received it`),
      ...(kept?.number === number && kept.seq === seq
        ? []
        : [`${number} was accepted as ${message_id}, seq ${seq}, and is not there`]),
    ];
  });
}

function halfOf(record: Record): string[] {
  const by_number = machinesByNumber(record);
  const stored = new Set(record.stored.map(({ number }) => number));
  return record.sent.flatMap(({ result, number, meeting_id }) => {
    const count = by_number.get(number)?.size ?? 0;
    if (result === 'failed') {
      return count > 0 || stored.has(number) ? [`${number} was refused, and received by ${count} all the same`] : [];
    }
    const all = record.members.get(meeting_id)?.length ?? 0;
    if (result === 'ok' || (stored.has(number) ? count === all : count === 0)) return [];
    return [`${number}, not known to be accepted, was received by ${count} of ${all}; stored: ${stored.has(number)}`];
  });
}

function misdirectedOf(record: Record): string[] {
  const sent = new Map(record.sent.map((each) => [each.number, each]));
  return record.received.flatMap(({ number, instance_id, meeting_id }) => {
    if (sent.get(number)?.meeting_id !== meeting_id) return [`${instance_id} received ${number}, which nobody sent so`];
    return record.members.get(meeting_id)?.includes(instance_id) === true
      ? []
      : [`${instance_id} is not in ${meeting_id}, and received ${number}`];
  });
}

function doubledOf(record: Record): string[] {
  const ids = new Map<string, string>();
  const found: string[] = [];
  const see = (what: string, id: string): void => {
    const known = ids.get(what);
    if (known === undefined) ids.set(what, id);
    else if (known !== id) found.push(`${what} is ${known} and ${id}`);
  };
  for (const { number, message_id } of record.stored) see(`message ${number}`, message_id);
  for (const { number, message_id } of record.received) see(`message ${number}`, message_id);
  for (const { number, instance_id, webhook_id } of record.received) see(`${number} to ${instance_id}`, webhook_id);
  for (const { number, instance_id, webhook_id } of record.received) see(webhook_id, `${number} to ${instance_id}`);
  return found;
}

/**
 * Finds lanes with a wrong order. Nobody joins or leaves during a run, so the seqs of a lane are 1, 2, 3, … to the
 * last.
 */
function disorderedOf(record: Record): string[] {
  const seen = new Set<string>();
  const next = new Map<string, number>();
  const found: string[] = [];
  for (const { webhook_id, instance_id, meeting_id, seq } of inTime(record.received)) {
    if (seen.has(webhook_id)) continue;
    seen.add(webhook_id);
    const lane = `${instance_id} in ${meeting_id}`;
    const expected = next.get(lane) ?? 1;
    if (seq !== expected) found.push(`${lane} received seq ${seq} where ${expected} was next`);
    next.set(lane, seq + 1);
  }
  return found;
}

/** How long after the response to a push its result may be stored, while the process stores later sends. */
const IN_FLIGHT_MS = 1_000;
/**
 * How many sends the process may accept before it stores a result. A result waits for the commit in progress, and is
 * part of one of the next two commits. Of so many sends, several are of the same sender, one after the other, and each
 * of these needed its own commit.
 */
const SENDS_MEANWHILE = 25;

/**
 * Finds pushes that arrived again. A push may arrive again when its process ended before it stored the result. The
 * checker decides this by the sends that the process accepted, and not by the time: a disk or a machine that stands
 * still for seconds delays results as much as sends.
 */
function repetitionsOf(record: Record): { repeated: string[]; ages_ms: number[]; per_end: Map<Ending, number> } {
  const stored_until_ms = new Map(record.endings.map((ending) => [ending, storedUntil(record.sent, ending)]));
  const latest = new Map<string, Arrival>();
  const repeated: string[] = [];
  const ages_ms: number[] = [];
  const per_end = new Map<Ending, number>();
  for (const push of inTime(record.received)) {
    const before = latest.get(push.webhook_id);
    latest.set(push.webhook_id, push);
    if (before === undefined) continue;
    const ageAt = (ending: Ending): number => (stored_until_ms.get(ending) as number) - before.answered_ms;
    const ending = record.endings.find((each) => mayRepeat(each, before, push) && ageAt(each) <= IN_FLIGHT_MS);
    if (ending === undefined) {
      const when = `${Math.round(push.at_ms - before.at_ms)} ms later`;
      repeated.push(
        `${push.webhook_id} (${push.instance_id}, seq ${push.seq}) came again ${when} as attempt ${push.attempt}, ${whence(before, push)}`,
      );
      continue;
    }
    ages_ms.push(Math.max(0, ageAt(ending)));
    per_end.set(ending, (per_end.get(ending) ?? 0) + 1);
  }
  return { repeated, ages_ms, per_end };
}

const whence = (before: Arrival, push: Arrival): string =>
  before.sender === push.sender ? 'from one process' : `from ${push.sender} after ${before.sender}`;

function mayRepeat({ sender, to_ms }: Ending, before: Arrival, push: Arrival): boolean {
  return before.sender === sender && before.at_ms <= to_ms && (push.sender !== sender || push.at_ms > to_ms);
}

/**
 * The time up to which a process had certainly stored its results, according to its last accepted sends; -Infinity when
 * it accepted too few sends.
 */
function storedUntil(sent: readonly Sent[], { url, from_ms }: Ending): number {
  const begun = sent.flatMap(({ accepted }) =>
    accepted?.url === url && accepted.from_ms < from_ms ? [accepted.from_ms] : [],
  );
  return begun.toSorted((a, b) => b - a)[SENDS_MEANWHILE - 1] ?? -Infinity;
}

function booksOf(record: Record): string[] {
  const owed = record.stored.reduce((sum, { meeting_id }) => sum + (record.members.get(meeting_id)?.length ?? 0), 0);
  const { delivered = 0, pending = 0, failed = 0, cancelled = 0 } = record.deliveries;
  const held = delivered + pending + failed + cancelled;
  return [
    ...(held === owed ? [] : [`${owed} deliveries are owed, and ${held} are on the books`]),
    ...(delivered === owed ? [] : [`${owed} deliveries are owed, and ${delivered} are said to be delivered`]),
  ];
}

function inTime(received: readonly Arrival[]): Arrival[] {
  return received.toSorted((a, b) => a.at_ms - b.at_ms);
}
