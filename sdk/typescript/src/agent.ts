import { ConvokeClient } from './client.ts';
import type { ConvokeError } from './error.ts';
import { assertConcurrency, assertNumberOption } from './number_option.ts';
import type { PushInHand, PullOptions } from './pull.ts';
import type { RawJson } from './raw_json.ts';
import { answerText, receiverOf, type ReceiverOptions } from './receiver.ts';
import type { JoinMeetingInput } from './schemas.ts';
import type { Reply } from './sending.ts';
import { stayRegistered } from './stay_registered.ts';
import type { JsonObject } from './types.ts';
import { untilReached } from './until_reached.ts';
import type { Push } from './verify.ts';

const DEFAULT_URL = 'http://127.0.0.1:8080';
/** A turn of a language model takes up to two minutes. */
const TURN_S = 120;
const CONCURRENCY = 16;
const SAME_SIGNAL_MS = 300;

/** The push that an agent gets: a message of a meeting. */
export type AgentPush = Push & Pick<PushInHand, 'signal'>;

type Said = string | JsonObject | RawJson;

/** The answer of an agent in the same meeting: a text, a message, or a list of them. Null or undefined: nothing. */
export type AgentAnswer = Said | readonly Said[] | null | undefined | void;

/** An agent as a function. It runs once for each push. When it throws, Convoke pushes the message again later. */
export type Agent = (push: AgentPush) => AgentAnswer | Promise<AgentAnswer>;

export interface AgentOptions extends Pick<PullOptions, 'concurrency' | 'signal' | 'sleep' | 'now'> {
  agent_id: string;
  /** The meetings to join at the start. The agent also stays in those that it joined before. */
  meetings?: readonly string[] | undefined;
  /**
   * Which messages are pushed in these meetings. When absent, the choice of an earlier join stays; without an earlier
   * join it is `all`.
   */
  wake?: JoinMeetingInput['wake'];
  /** Which of the messages that waited while the machine was away are pushed: `all`, or only the `latest`. */
  catch_up?: JoinMeetingInput['catch_up'];
  /**
   * How old a message may be, in seconds. An older message is no longer pushed. 0: a message of any age is pushed.
   */
  max_age_s?: number | undefined;
  /** The URL of Convoke. When absent: the variable CONVOKE_URL, otherwise http://127.0.0.1:8080. */
  base_url?: string | undefined;
  /** The variable CONVOKE_API_KEY when absent. */
  api_key?: string | undefined;
  /**
   * The agent_id when absent. Keep it the same at every start: then the agent gets the messages that waited while it was
   * away.
   */
  instance_id?: string | undefined;
  /** The name that people see; the instance_id when absent. */
  instance_name?: string | undefined;
  /** How many seconds the agent may take for a push; 120 when absent, 600 at most. */
  turn_s?: number | undefined;
  /**
   * Called when the service responds, and when the connection is lost and will be made again. When absent: console.warn
   * says why the service is lost, once for each reason, and that it is back.
   */
  onConnection?: PullOptions['onConnection'];
  /** Called with the error that the agent threw; console.error when absent. */
  onError?: ((error: unknown, push: Push) => void) | undefined;
  /** Another implementation of fetch. */
  fetch?: typeof fetch | undefined;
}

/**
 * Lets an agent take part in meetings from anywhere, even behind a firewall. Registers it as an instance that pulls,
 * joins its meetings, and sends each of its answers as a reply in the meeting of the push.
 *
 *     await serveAgent({ agent_id: 'anna', meetings: ['standup-42'] }, ({ message }) => think(message));
 *
 * Waits for a service that cannot be reached, at the start and later. Registers and joins again when its instance was
 * deleted, unless that happens twice within a minute.
 *
 * Resolves when `signal` is aborted and the pushes in progress have their answers. Without an option `signal`, SIGTERM
 * and SIGINT end the agent in the same way, if the runtime has signals. A second signal ends the process.
 *
 * @throws ConvokeError when the service refuses the agent, or its instance was deleted twice within a minute
 * @throws TypeError for an option that does not exist or has a wrong type, such as `meetings` that are no list
 * @throws RangeError for a number that is NaN or too small
 */
export async function serveAgent(options: AgentOptions, agent: Agent): Promise<void> {
  const { agent_id, instance_id = agent_id, concurrency = CONCURRENCY } = options;
  assertKnown(options);
  assertConcurrency(concurrency);
  assertNumberOption('turn_s', options.turn_s, 1);
  assertNumberOption('max_age_s', options.max_age_s, 0);
  const { onConnection = connectionWarned(), sleep, now } = options;
  const client = new ConvokeClient({
    base_url: options.base_url ?? variable('CONVOKE_URL') ?? DEFAULT_URL,
    api_key: options.api_key ?? variable('CONVOKE_API_KEY'),
    fetch: options.fetch,
  });
  const end = options.signal === undefined ? signalOfProcess() : { signal: options.signal, release() {} };
  const { signal } = end;
  const takePart = async (): Promise<void> => {
    await enter(client, { ...options, onConnection }, signal);
    for await (const push of client.pull(instance_id, { concurrency, signal, onConnection, sleep, now })) {
      respond(push, agent, options).catch((thrown: unknown) => console.error(thrown));
    }
  };
  try {
    await stayRegistered(takePart, { signal, now, onMissing: (error) => onConnection('reconnecting', error) });
  } catch (error) {
    // It is no error when the signal is aborted before the agent has joined.
    if (!signal.aborted) throw error;
  } finally {
    end.release();
  }
}

export type AgentReceiverOptions = Omit<ReceiverOptions, 'onPush' | 'onTest'>;

/**
 * The same agent as a webhook endpoint: a handler from Request to Response, as `createReceiver` makes one. Register its
 * instance with `replies: true` yourself. Convoke waits 5 s for the answer. A later answer is kept for the repetition of
 * the push, so nothing aborts `push.signal` here.
 *
 * @throws VerificationError, RangeError and TypeError as `createReceiver`, at once
 */
export function createAgentReceiver(
  options: AgentReceiverOptions,
  agent: Agent,
): (request: Request) => Promise<Response> {
  return receiverOf(options, async (push) => {
    if (push.test) return null;
    return replyBody(await agent({ ...push, signal: new AbortController().signal }));
  });
}

/** The names of all options. The type makes the compiler refuse a list in which one is missing. */
const KNOWN: Record<keyof AgentOptions, true> = {
  agent_id: true,
  meetings: true,
  wake: true,
  catch_up: true,
  max_age_s: true,
  base_url: true,
  api_key: true,
  instance_id: true,
  instance_name: true,
  turn_s: true,
  concurrency: true,
  signal: true,
  onConnection: true,
  onError: true,
  fetch: true,
  sleep: true,
  now: true,
};

/** In plain JavaScript nothing else notices `meeting` in place of `meetings`, and the agent would hear nothing. */
function assertKnown(options: AgentOptions): void {
  const unknown = Object.keys(options).filter((name) => !(name in KNOWN));
  if (unknown.length > 0)
    throw new TypeError(`serveAgent has no option ${unknown.join(', ')}; it has ${Object.keys(KNOWN).join(', ')}`);
  if (options.meetings !== undefined && !Array.isArray(options.meetings))
    throw new TypeError("meetings must be a list, such as ['standup-42']");
}

/** Registers and joins, and repeats both until they succeed. */
async function enter(client: ConvokeClient, options: AgentOptions, signal: AbortSignal): Promise<void> {
  const { agent_id, instance_id = agent_id, instance_name = instance_id, meetings = [], turn_s = TURN_S } = options;
  const { onConnection, sleep, now, wake, catch_up, max_age_s } = options;
  const agent_ids = [agent_id];
  const registration = { instance_id, instance_name, agent_ids, replies: true, ack_timeout_s: turn_s };
  const waiting = { signal, sleep, now, onFailure: (error: ConvokeError) => onConnection?.('reconnecting', error) };
  await untilReached(() => client.register({ ...registration, transport: 'pull' }, { signal }), waiting);
  for (const meeting_id of meetings) {
    const joined = { instance_id, meeting_id, agent_ids, wake, catch_up, max_age_s };
    await untilReached(() => client.joinMeeting(joined, { signal }), waiting);
  }
}

/** Says on the console why the service is lost, once for each reason until it is back. */
function connectionWarned(): NonNullable<PullOptions['onConnection']> {
  const said = new Set<string>();
  return (_, error) => {
    if (error === null) {
      if (said.size > 0) console.warn('Convoke responds again');
      said.clear();
    } else if (!said.has(error.code)) {
      said.add(error.code);
      console.warn(`${error.detail.replace(/\.$/, '')}; trying again`);
    }
  };
}

async function respond(push: PushInHand, agent: Agent, options: AgentOptions): Promise<void> {
  const { onError = (error) => console.error(error) } = options;
  try {
    const body = push.test ? null : replyBody(await agent(push));
    push.respond({ status_code: 200, ...(body !== null && { body }) });
  } catch (error) {
    push.respond({ status_code: 500, body: 'the agent failed; its log has the reason' });
    return onError(error, push);
  }
}

/**
 * The body of a response that holds the replies; null when there are none.
 *
 * @throws TypeError when it is no answer, RangeError when it is too long
 */
function replyBody(answer: AgentAnswer): string | null {
  if (answer === null || answer === undefined) return null;
  return answerText(isList(answer) ? { replies: answer.map(replyOf) } : { reply: replyOf(answer) });
}

/** In plain JavaScript an answer may be anything. The service would refuse it, and the agent would not learn of that. */
function replyOf(said: Said): Reply {
  if (typeof said === 'string') return said;
  if (typeof said === 'object' && said !== null && !Array.isArray(said)) return { message: said };
  const what = Array.isArray(said) ? 'list in a list' : said === null ? 'null in a list' : typeof said;
  throw new TypeError(`an agent answers with a text, a message, a list of these, or nothing, not with a ${what}`);
}

/** `Array.isArray` does not narrow a readonly list. */
function isList(answer: Said | readonly Said[]): answer is readonly Said[] {
  return Array.isArray(answer);
}

/** Which parts of Node's `process` exist depends on the runtime; a page has none. */
interface Process {
  env?: Record<string, string | undefined>;
  on?: (signal: string, listener: () => void) => unknown;
  off?: (signal: string, listener: () => void) => unknown;
}

function processHere(): Process | undefined {
  return (globalThis as { process?: Process }).process;
}

function variable(name: string): string | undefined {
  try {
    return processHere()?.env?.[name] || undefined;
  } catch {
    // Deno throws when the program may not read its environment.
    return undefined;
  }
}

/**
 * A signal that the first SIGTERM or SIGINT aborts. Ctrl-C goes to every process of the terminal, and some parents, such
 * as npm, also pass it on. So signals within SAME_SIGNAL_MS count as one.
 */
function signalOfProcess(): { signal: AbortSignal; release: () => void } {
  const ending = new AbortController();
  const process = processHere();
  const names = ['SIGTERM', 'SIGINT'];
  let timer: ReturnType<typeof setTimeout> | undefined;
  const release = () => {
    clearTimeout(timer);
    for (const name of names) process?.off?.(name, end);
  };
  const end = () => {
    if (ending.signal.aborted) return;
    timer = setTimeout(release, SAME_SIGNAL_MS);
    ending.abort();
  };
  for (const name of names) process?.on?.(name, end);
  return { signal: ending.signal, release };
}
