import { type Outcome, OUTCOMES } from '../../domain/outcome.ts';
import type { Asked, Meaning, Runtime, RuntimeRequest, RuntimeResponse, Taken } from '../../domain/runtimes/runtime.ts';
import type { Options } from '../../domain/runtimes/options.ts';
import { concerns, notUnderstood } from '../../domain/runtimes/words.ts';
import type { AnsweredPart } from '../transport/transport.ts';
import type { Exchanged } from './exchanged.ts';
import { ANSWERS_CHARS_MAX, type AnswersOfPush } from './kept_answers.ts';

/** The most requests of one push in flight. */
const AT_A_TIME = 4;
/** How long a push waits when there is no room for answers. After that, the engine repeats the attempt at once. */
const NO_ROOM_PAUSE_MS = 500;

/** The result of a push, over all its requests. */
export interface RuntimeAnswer extends Omit<Exchanged, 'body'> {
  answered: AnsweredPart[];
}

export interface AskParts {
  runtime: Runtime;
  options: Options;
  base_url: string;
  asked: Asked;
  /** The number of the attempt, from 1. */
  attempt: number;
  /** Agents that answered in an earlier attempt. */
  answered_agents: readonly string[];
  /** The memory of the answers, until the push has its result. */
  kept: Pick<AnswersOfPush, 'take' | 'hasRoom'>;
  /** Makes a request; null when the attempt is to count as not made. */
  exchange: (request: RuntimeRequest, agents: readonly string[]) => Promise<Exchanged | null>;
  /** Waits. Resolves to false when no time is left for another request. */
  pause: (ms: number) => Promise<boolean>;
}

/**
 * Asks a runtime: one request for all agents of a push, or one for each agent that has not answered yet. When a request
 * fails, the other requests are still made. While there is no room for answers, no request is made: an agent that has
 * run must not run again because its answer found no room.
 *
 * @returns null when the attempt is to count as not made
 */
export async function askRuntime(parts: AskParts): Promise<RuntimeAnswer | null> {
  const { runtime, options, asked, attempt, answered_agents, kept, pause } = parts;
  if (!kept.hasRoom) {
    await pause(NO_ROOM_PAUSE_MS);
    return null;
  }
  const groups = runtime.asksEach(options) ? asked.agents.map((agent) => [agent]) : [asked.agents];
  const left = groups.filter((agents) => !agents.every((agent) => answered_agents.includes(agent)));
  const results: (RuntimeAnswer | null)[] = [];
  // Each attempt begins with other agents. Otherwise agents that never answer would use up the time of every attempt,
  // and the later agents would never be asked.
  const first = ((attempt - 1) * AT_A_TIME) % Math.max(left.length, 1);
  const waiting = [...left.slice(first), ...left.slice(0, first)].values();
  const work = async (): Promise<void> => {
    for (const agents of waiting) {
      if (!kept.hasRoom) return void results.push(NOT_ASKED);
      const history = asked.history.filter((message) => concerns(message, agents));
      results.push(await askOnce(parts, { ...asked, agents, history }));
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_A_TIME, left.length) }, work));
  if (results.includes(null)) return null;
  return together(results as RuntimeAnswer[]);
}

async function askOnce(parts: AskParts, asked: Asked): Promise<RuntimeAnswer | null> {
  const { runtime, options, base_url, kept, exchange, pause } = parts;
  let if_late: TakenBody | null = null;
  let pause_ms = 0;
  for (let request = runtime.requestOf(asked, options, base_url); ;) {
    const exchanged = await exchange(request, asked.agents);
    if (exchanged === null) return null;
    const { body, ...result } = exchanged;
    const end = { ...result, answered: [] };
    if (if_late !== null) {
      if (result.outcome === 'timeout') return { ...end, ...taken(if_late, asked, kept) };
      if (mayPass(result)) {
        if (await pause(Math.max(pause_ms, askedMs(result)))) continue;
        return { ...end, ...taken(withReason(if_late, result.detail), asked, kept) };
      }
    }
    if (result.status_code === null || !OUTCOMES[result.outcome].reached) return end;
    const response = { status_code: result.status_code, body };
    // A body that did not arrive whole cannot be read.
    if (result.outcome === 'broken_response' || result.outcome === 'timeout') return end;
    const meaning = meaningOf(parts, response, asked);
    // Asks again, as after a response that did not arrive whole, because the agent already has the message.
    if (if_late !== null && meaning.kind === 'failed' && meaning.outcome === 'broken_response') {
      if (await pause(pause_ms)) continue;
      return { ...end, ...taken(withReason(if_late, meaning.detail), asked, kept) };
    }
    if (meaning.kind === 'failed') return { ...end, outcome: meaning.outcome, detail: meaning.detail };
    if (meaning.kind === 'answered') return { ...end, ...taken(meaning, asked, kept) };
    ({ request, pause_ms } = meaning);
    if_late = withBody(meaning.if_late);
    if (!(await pause(pause_ms))) return { ...end, ...taken(if_late, asked, kept) };
  }
}

/** The statuses that say that the runtime does not have the task any more. */
const GONE: ReadonlySet<number> = new Set([404, 410]);

/**
 * Whether a request for the state of a task may succeed a little later. The agent already has the message, so the same
 * request is made again: another attempt would send the message again, and the agent would run twice. A
 * `broken_response` has a status, but its body did not arrive whole, or there was no room for it.
 */
function mayPass({ outcome, status_code }: Pick<Exchanged, 'outcome' | 'status_code'>): boolean {
  if (status_code === null) return outcome !== 'ok';
  return outcome === 'broken_response' || (status_code >= 300 && !GONE.has(status_code));
}

/** Adds why the last request for the state of the task failed, such as a body that is too long to be read. */
function withReason(if_late: TakenBody, why: string): TakenBody {
  return why === '' ? if_late : { ...if_late, note: `${if_late.note}; the last response: ${why}` };
}

/** The milliseconds that Retry-After asks for; 0 when Retry-After names no seconds. */
function askedMs({ retry_after }: Pick<Exchanged, 'retry_after'>): number {
  const seconds = Number(retry_after);
  return Number.isFinite(seconds) ? seconds * 1000 : 0;
}

/** The runtime took the message. `body` has the answers in the form in which they are kept. */
interface TakenBody {
  kind: 'answered';
  body: string;
  note: string;
}

/**
 * The meaning of a response. A runtime may respond with anything, for example with JSON that is too deep to be written
 * again, or with an object where a text should be. An exception would end the process.
 */
function meaningOf(
  { runtime, options, base_url }: AskParts,
  response: RuntimeResponse,
  asked: Asked,
): Exclude<Meaning, Taken> | TakenBody {
  try {
    const meaning = runtime.read(response, asked, options, base_url);
    return meaning.kind === 'answered' ? withBody(meaning) : meaning;
  } catch {
    return NOT_READABLE;
  }
}

const NOT_READABLE = notUnderstood('its body is nested too deeply, or has a value of a wrong type') as Exclude<
  Meaning,
  Taken
>;

function withBody({ kind, answers, note = '' }: Taken): TakenBody {
  return { kind, body: bodyOf(answers), note };
}

function taken(
  { body, note }: TakenBody,
  { agents }: Asked,
  kept: AskParts['kept'],
): Pick<RuntimeAnswer, 'outcome' | 'detail' | 'answered'> {
  switch (kept.take(body.length)) {
    case 'kept':
      return { outcome: 'ok', detail: note, answered: [{ agents, body }] };
    // The agents have run already, and another attempt would run them again. So the answer is lost.
    case 'too_long':
      return { outcome: 'ok', detail: TOO_LONG, answered: [{ agents, body: bodyOf([]) }] };
    case 'no_room':
      return { outcome: 'ok', detail: NO_ROOM, answered: [{ agents, body: bodyOf([]) }] };
  }
}

const bodyOf = (answers: Taken['answers']): string => JSON.stringify({ replies: answers });

const TOO_LONG = `the answers of all agents were over ${ANSWERS_CHARS_MAX} characters; an answer was not sent`;
const NO_ROOM = 'the service had no room for the answer, so it was not sent: very many others arrived at the same time';

/** The result for the agents that were not asked. The next attempt asks them. */
const NOT_ASKED: RuntimeAnswer = {
  outcome: 'broken_response',
  status_code: null,
  detail: 'the service had no room for the answers of more agents; it asks them in the next attempt',
  retry_after: null,
  excerpt: '',
  answered: [],
};

/**
 * One result for the push: that of the first failure. Without a failure, the first result with a note. The answers in
 * all results count.
 */
function together(results: RuntimeAnswer[]): RuntimeAnswer {
  const answered = results.flatMap((each) => each.answered);
  const failures = results.filter(({ outcome }) => outcome !== 'ok');
  const [first] = failures.length > 0 ? failures : [...results.filter(({ detail }) => detail !== ''), ...results];
  if (first === undefined) return { ...NOTHING_LEFT, answered };
  const agents = answered.flatMap((each) => each.agents);
  const others = first.outcome === 'ok' || agents.length === 0 ? '' : `; answered already: ${named(agents)}`;
  return { ...first, answered, detail: first.detail + others };
}

/**
 * The result when all agents answered in earlier attempts. Their answers were stored, but the new state of the delivery
 * was not.
 */
const NOTHING_LEFT = {
  outcome: 'ok' as Outcome,
  status_code: 200,
  detail: '',
  retry_after: null,
  excerpt: '',
};

const NAMED_MAX = 5;

function named(agents: readonly string[]): string {
  const more = agents.length - NAMED_MAX;
  return agents.slice(0, NAMED_MAX).join(', ') + (more > 0 ? ` and ${more} more` : '');
}
