import {
  type ConvokeClient,
  type ConvokeError,
  type PushInHand,
  type PushResult,
  stayRegistered,
  untilReached,
} from '@convoke/sdk';
import { wallNow } from '../../../../wall_clock.ts';
import { clientFor } from '../../api.ts';
import { SAME_SIGNAL_MS } from '../../exit.ts';
import { durationInWords } from '../../format.ts';
import { goOnUnread, note, plain, print, printJson, styled } from '../../terminal.ts';
import { ackTimeoutOf, type Connection } from './connection.ts';
import { holdWhileRestarting } from './hold.ts';
import { LocalAgents } from './local_agents.ts';
import { cutInWords, type LocalResponse, LocalRuntime } from './local_runtime.ts';

/** The most meetings whose pushes are given to the runtime at the same time. */
const CONCURRENCY = 32;
/** The part of a push's time that stays for handing in its result. */
const HAND_IN_MS = 5_000;

/**
 * Lets the runtime take part until the process is asked to end: registers, joins, and hands each push to the runtime.
 * Does so again when the instance was deleted, unless that happens twice within a minute.
 */
export async function connect(connection: Connection, { json }: { json?: true }): Promise<void> {
  goOnUnread();
  const { url, api_key, instance_id, agent_ids, meeting_ids, to } = connection;
  const client = clientFor({ url, ...(api_key !== null && { apiKey: api_key }) });
  const runtime = new LocalRuntime(new URL(to), connection.headers);
  const agents = connection.runtime && new LocalAgents(client, runtime, connection.runtime, to);
  const { signal, release } = interrupted();
  const noteLoss = onceUntilRegained();
  const noteWait = onceUntilTaken(to);
  const post = async (push: PushInHand, reply_by_ms?: number): Promise<LocalResponse> => {
    const result = await (agents?.post(push) ?? runtime.post(push, reply_by_ms));
    if ('status_code' in result) noteWait(result.status_code === 503 ? `${to} responds 503` : null);
    else if (!runtime.is_reached) noteWait(unreachable(to, result.not_reached));
    return result;
  };
  let is_tried = false;
  const takePart = async (): Promise<void> => {
    await enter(client, connection, signal, (error) => noteLoss(error));
    noteLoss(null);
    note(
      plain(
        `${agent_ids.join(', ')} takes part in ${meeting_ids.join(', ') || 'no meeting yet'} as ${instance_id}: pulls from ${url} for ${to}`,
      ),
    );
    const pushes = client.pull(instance_id, {
      concurrency: CONCURRENCY,
      signal,
      ready: (ending) => {
        if (is_tried && runtime.is_reached) return undefined;
        is_tried = true;
        return runtimeListens(client, connection, runtime, noteWait, ending);
      },
      onConnection: (_, error) => noteLoss(error),
    });
    for await (const push of pushes) void carry(push, { post }, connection, signal, json);
  };
  const onMissing = () => note(`${plain(instance_id)} is no longer registered; registering it again`);
  try {
    await stayRegistered(takePart, { signal, onMissing });
  } catch (error) {
    // The process was asked to end before the runtime took part.
    if (!signal.aborted) throw error;
  } finally {
    release();
  }
}

/** Registers and joins, and repeats both until they succeed. */
async function enter(
  client: ConvokeClient,
  connection: Connection,
  signal: AbortSignal,
  onFailure: (error: ConvokeError) => void,
): Promise<void> {
  const { instance_id, instance_name, agent_ids, meeting_ids, success_statuses, replies } = connection;
  const { runtime, webhook_secret, ack_timeout_s } = connection;
  const registration = {
    instance_id,
    instance_name,
    agent_ids,
    transport: 'pull' as const,
    webhook_secret,
    replies: replies || runtime !== undefined,
    success_statuses: success_statuses ?? undefined,
    ack_timeout_s: ack_timeout_s === null && runtime === undefined ? undefined : ackTimeoutOf(connection),
  };
  await untilReached(() => client.register(registration, { signal }), { signal, onFailure });
  for (const meeting_id of meeting_ids) {
    const join = () => client.joinMeeting({ instance_id, meeting_id, agent_ids, ...connection.rules }, { signal });
    await untilReached(join, { signal, onFailure });
  }
}

/** Gives a push to the runtime, and the response of the runtime to the service. */
async function carry(
  push: PushInHand,
  runtime: Pick<LocalRuntime, 'post'>,
  connection: Connection,
  ending: AbortSignal,
  json: true | undefined,
): Promise<void> {
  const started_ms = performance.now();
  const ack_timeout_ms = ackTimeoutOf(connection) * 1000;
  const reply_by_ms = connection.replies ? started_ms + ack_timeout_ms - HAND_IN_MS : undefined;
  const post = () => runtime.post(push, reply_by_ms);
  // A push with which no request can be made must not end the others.
  const posted = await holdWhileRestarting(push, post, ack_timeout_ms, ending).catch((error: Error): LocalResponse => ({
    status_code: 500,
    body: `convoke connect failed: ${error.message}`,
  }));
  const { is_cut = false, ...result } = posted;
  push.respond(result);
  printPush(push, result, performance.now() - started_ms, json);
  if (is_cut && connection.replies)
    note(`${plain(push.meeting_id)} #${push.seq}: ${cutInWords()}; a reply that is not whole is not sent`);
}

/**
 * Waits until the runtime listens, also before the first pull. Meanwhile the command pulls nothing, so pushes wait at
 * the service and spend no attempts. If a push was handed back before, a back-off began, and the heartbeat ends it.
 */
async function runtimeListens(
  client: ConvokeClient,
  { instance_id, to }: Connection,
  runtime: LocalRuntime,
  noteWait: (what: string | null) => void,
  signal: AbortSignal,
): Promise<void> {
  const was_reached = runtime.is_reached;
  await runtime.listens(signal, (why) => noteWait(unreachable(to, why)));
  noteWait(null);
  if (was_reached) return;
  await untilReached(() => client.heartbeat(instance_id, { signal }), { signal });
}

function printPush(push: PushInHand, result: PushResult, duration_ms: number, json: true | undefined): void {
  const { delivery_id, meeting_id, message_id, seq, attempt } = push;
  if (json) {
    const { body: _, ...outcome } = { body: '', ...result };
    printJson(
      { delivery_id, message_id, meeting_id, seq, attempt, ...outcome, duration_ms: Math.round(duration_ms) },
      0,
    );
    return;
  }
  const time = new Date(wallNow()).toTimeString().slice(0, 8);
  const repeated = attempt !== null && attempt > 1 ? `, attempt ${attempt}` : '';
  print(
    `${styled('dim', time)}  ${plain(meeting_id)} #${seq}${repeated}  ${outcomeInWords(result)}  ${styled('dim', durationInWords(duration_ms))}`,
  );
}

function outcomeInWords(result: PushResult): string {
  if ('not_reached' in result) return styled('red', plain(`not reached: ${result.not_reached}`));
  const is_success = result.status_code >= 200 && result.status_code < 300;
  return styled(is_success ? 'green' : 'yellow', String(result.status_code));
}

/** Reports each reason for the loss of the service once, and its return once. */
function onceUntilRegained(): (error: ConvokeError | null) => void {
  const said = new Set<string>();
  return (error) => {
    if (error === null) {
      if (said.size > 0) note('the service responds again');
      said.clear();
    } else if (!said.has(error.code)) {
      said.add(error.code);
      note(`${plain(error.detail).replaceAll('base_url', '--url')}; trying again`);
    }
  };
}

/** Says once what the pushes wait for, and once that they wait no longer. */
function onceUntilTaken(to: string): (what: string | null) => void {
  let is_waiting = false;
  return (what) => {
    if ((what !== null) === is_waiting) return;
    is_waiting = what !== null;
    note(what === null ? `${to} is there: pushes go on` : `${what}; until it takes pushes, they wait`);
  };
}

/** @param why the failure of the connection, in the words of Node */
function unreachable(to: string, why: string): string {
  return why.includes('ECONNREFUSED')
    ? `nothing listens at ${to}`
    : `no connection to ${to} is possible: ${plain(why)}`;
}

/** A signal that the first Ctrl-C aborts; a second Ctrl-C ends the process. */
function interrupted(): { signal: AbortSignal; release: () => void } {
  const ending = new AbortController();
  const end = () => {
    if (ending.signal.aborted) return;
    setTimeout(release, SAME_SIGNAL_MS).unref();
    note('ends after the pushes in progress; a second Ctrl-C ends it at once');
    ending.abort();
  };
  const release = () => void process.off('SIGINT', end).off('SIGTERM', end);
  process.on('SIGINT', end).on('SIGTERM', end);
  return { signal: ending.signal, release };
}
