/**
 * Machines that pull while the service and the network fail, and the checker of what they saw. They do not use the SDK.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { WAIT_MS_MAX } from '../support/wait.ts';

/** A push as a machine got it. */
export interface ReceivedPush {
  instance_id: string;
  meeting_id: string;
  seq: number;
  number: number;
  delivery_id: string;
  attempt: number;
  at_ms: number;
}

/** A result of a push that the service confirmed as counted. */
export interface Counted {
  delivery_id: string;
  attempt: number;
  /** When the pull with the result began. */
  asked_ms: number;
  at_ms: number;
}

export interface PullRecord {
  /** The numbers of the accepted messages, with their meetings. */
  accepted: { meeting_id: string; number: number }[];
  /** The instances of each meeting. */
  members: ReadonlyMap<string, readonly string[]>;
  received: ReceivedPush[];
  counted: Counted[];
  /** When a node was killed, and from when on the results that it counted may not have been written. */
  kills: { at_ms: number; unwritten_from_ms: number }[];
}

interface Push {
  delivery_id: string;
  attempt: number;
  headers: Record<string, string>;
  body: string;
}

/** The response to a pull, and when this process made the pull, and read the beginning and the end of the response. */
interface PulledBody {
  pushes: Push[];
  results: { delivery_id: string; attempt: number; became: string }[];
  asked_ms: number;
  began_ms: number;
  ended_ms: number;
}

/** How likely it is that a machine forgets all pushes in hand, and that a result is lost on the way. */
const DIES = 0.05;
const LOSES = 0.05;
const AGAIN_MS = 50;

/** A process of a machine: it pulls, works and reports. Several processes may run for one instance. */
export class PullingProcess {
  readonly received: ReceivedPush[] = [];
  readonly counted: Counted[] = [];
  /** The URLs of the nodes from which the process may pull. */
  urls: string[];
  /** Whether the process dies and loses results. */
  fails = true;
  readonly #instance_id: string;
  readonly #random: () => number;
  #is_over = false;
  readonly #run: Promise<void>;

  constructor(instance_id: string, urls: string[], random: () => number) {
    this.#instance_id = instance_id;
    this.urls = urls;
    this.#random = random;
    this.#run = this.#loop();
  }

  async end(): Promise<void> {
    this.#is_over = true;
    await this.#run;
  }

  async #loop(): Promise<void> {
    let results: { delivery_id: string; attempt: number; status_code: number }[] = [];
    while (!this.#is_over) {
      const url = this.urls[Math.floor(this.#random() * this.urls.length)] as string;
      const answer = await this.#pull(url, { results, max: 8, wait_s: 2 }).catch(() => null);
      if (answer === null) {
        await pause(AGAIN_MS);
        continue;
      }
      const { asked_ms, began_ms, ended_ms, pushes } = answer;
      for (const { delivery_id, attempt, became } of answer.results) {
        if (became === 'counted') this.counted.push({ delivery_id, attempt, asked_ms, at_ms: ended_ms });
      }
      this.received.push(...pushes.map((push) => receivedPushOf(push, this.#instance_id, began_ms)));
      const dies = this.fails && this.#random() < DIES;
      results = dies ? [] : pushes.filter(() => !(this.fails && this.#random() < LOSES)).map(resultOf);
    }
  }

  /**
   * Makes a pull; null when a node refused it. A push counts as received when its response began, and a result as
   * counted when the response had ended. So a response that this busy process reads late is no push after its result.
   */
  async #pull(url: string, body: object): Promise<PulledBody | null> {
    const asked_ms = nowMs();
    const answer = await fetch(`${url}/api/v1/instances/${this.#instance_id}/pull/`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(WAIT_MS_MAX),
    });
    const began_ms = nowMs();
    const pulled = (await answer.json()) as Pick<PulledBody, 'pushes' | 'results'>;
    return answer.status === 200 ? { ...pulled, asked_ms, began_ms, ended_ms: nowMs() } : null;
  }
}

/** The time with microseconds: within a millisecond the service counts a result, and hands out the next push. */
const nowMs = (): number => performance.timeOrigin + performance.now();

const resultOf = ({ delivery_id, attempt }: Push) => ({ delivery_id, attempt, status_code: 200 });

function receivedPushOf(
  { delivery_id, attempt, headers, body }: Push,
  instance_id: string,
  at_ms: number,
): ReceivedPush {
  const { meeting_id, message } = JSON.parse(body) as { meeting_id: string; message: { number: number } };
  const seq = Number(headers['convoke-seq']);
  return { instance_id, meeting_id, seq, number: message.number, delivery_id, attempt, at_ms };
}

/**
 * Checks the promises: no message is lost, no push arrives again unless its result may be lost, and first attempts are
 * in order.
 */
export function brokenPromises({ accepted, members, received, counted, kills }: PullRecord): string[] {
  const broken: string[] = [];
  const known = new Set(received.map(({ instance_id, number }) => `${instance_id} ${number}`));
  for (const { meeting_id, number } of accepted) {
    for (const instance_id of members.get(meeting_id) ?? []) {
      if (!known.has(`${instance_id} ${number}`)) broken.push(`lost: ${number} to ${instance_id}`);
    }
  }
  const first_counted = new Map<string, Counted>();
  for (const each of counted.toSorted((a, b) => a.at_ms - b.at_ms)) {
    if (!first_counted.has(each.delivery_id)) first_counted.set(each.delivery_id, each);
  }
  const in_order = received.toSorted((a, b) => a.at_ms - b.at_ms);
  const newest = new Map<string, number>();
  const seen = new Set<string>();
  for (const { instance_id, meeting_id, seq, delivery_id, attempt, at_ms } of in_order) {
    const done = first_counted.get(delivery_id);
    // A pull that began before the kill may have its response from the killed node, however late this process reads it.
    const has_excuse = kills.some(
      (kill) =>
        kill.at_ms < at_ms && done !== undefined && done.at_ms > kill.unwritten_from_ms && done.asked_ms < kill.at_ms,
    );
    // The response with an earlier attempt may come late, because another node forwards it. The response with the push
    // and the response that counts its result may arrive in the same millisecond.
    const is_again = done !== undefined && attempt >= done.attempt && at_ms > done.at_ms + 5;
    if (is_again && !has_excuse) broken.push(`twice: seq ${seq} of ${meeting_id} to ${instance_id}`);
    if (seen.has(delivery_id)) continue;
    seen.add(delivery_id);
    const lane = `${instance_id} ${meeting_id}`;
    if (seq < (newest.get(lane) ?? 0)) broken.push(`order: seq ${seq} of ${meeting_id} to ${instance_id}`);
    newest.set(lane, Math.max(seq, newest.get(lane) ?? 0));
  }
  return broken;
}
