import { setTimeout as pause } from 'node:timers/promises';
import { type ConvokeClient, ConvokeError, type PushInHand, type PushResult } from '@convoke/sdk';
import { askedOf } from '../../../../delivery/runtimes/asked.ts';
import type { Exchanged } from '../../../../delivery/runtimes/exchanged.ts';
import { askRuntime, type RuntimeAnswer } from '../../../../delivery/runtimes/ask_runtime.ts';
import { detailWithoutSecrets } from '../../../../delivery/runtimes/detail.ts';
import { KeptAnswers } from '../../../../delivery/runtimes/kept_answers.ts';
import type { AnsweredPart } from '../../../../delivery/transport/transport.ts';
import { parseExactly } from '../../../../domain/exact_json.ts';
import { REPLIES_MAX } from '../../../../domain/reply.ts';
import { outcomeOfStatus } from '../../../../domain/outcome.ts';
import type { Answer, Asked, PastMessage, RuntimeRequest } from '../../../../domain/runtimes/runtime.ts';
import { runtimeOf, type RuntimeSettings } from '../../../../domain/runtimes/runtimes.ts';
import { traceHeadersIn } from '../../../../domain/trace_context.ts';
import { note } from '../../terminal.ts';
import { LocalHistory, newest } from './local_history.ts';
import { BODY_BYTES_MAX, cutInWords, type LocalRuntime } from './local_runtime.ts';

/** The longest deadline for a result. */
const TURN_MS_MAX = 600_000;
/**
 * The most pushes that are remembered while only some of their agents have answered. The oldest push is forgotten
 * first, and all its agents are asked again.
 */
const PARTS_MAX = 1_000;
/** The body of a part whose answers were sent. */
const NO_REPLIES = JSON.stringify({ replies: [] });

interface KeptPart extends AnsweredPart {
  /** Why it is not known whether the service has the answers. They may be sent only with the same idempotency keys. */
  in_doubt?: string;
}

/** The agents of a runtime on this machine. Requests to them have the shape of the runtime. */
export class LocalAgents {
  readonly #client: Pick<ConvokeClient, 'listRawMessages' | 'sendReply'>;
  readonly #local: Pick<LocalRuntime, 'send' | 'headers'>;
  readonly #settings: RuntimeSettings;
  readonly #base_url: string;
  /** The answers of agents, for pushes that are not complete yet. */
  readonly #answered = new Map<string, KeptPart[]>();
  /** The messages that this machine keeps when the key may not read messages; null until the service refused a read. */
  #history: LocalHistory | null = null;

  constructor(
    client: Pick<ConvokeClient, 'listRawMessages' | 'sendReply'>,
    local: Pick<LocalRuntime, 'send' | 'headers'>,
    settings: RuntimeSettings,
    base_url: string,
  ) {
    this.#client = client;
    this.#local = local;
    this.#settings = settings;
    this.#base_url = base_url;
  }

  /** Asks the agents of a push. @returns their answers as replies, or the failure of one of them */
  async post(push: PushInHand): Promise<PushResult> {
    const { options } = this.#settings;
    const runtime = runtimeOf(this.#settings);
    const asked = askedOf(push.body, push.headers, []);
    const history = await this.#historyOf(push, asked, runtime.historyOf(options));
    if (typeof history === 'string') return { not_reached: history };
    const known = this.#answered.get(push.delivery_id) ?? [];
    const [before, answer] = await Promise.all([
      this.#sendAhead(push, asked, known),
      askRuntime({
        runtime,
        options,
        base_url: this.#base_url,
        asked: { ...asked, history },
        attempt: push.attempt ?? 1,
        answered_agents: known.flatMap(({ agents }) => agents),
        kept: new KeptAnswers().ofPush(),
        exchange: (request, agents) => this.#exchange(push, request, agents),
        pause: (ms) => pause(ms, true, { signal: push.signal }).catch(() => false),
      }) as Promise<RuntimeAnswer>,
    ]);
    this.#history?.answer(push.meeting_id, asked.seq, answersIn(answer.answered));
    const answered = [...before, ...(await this.#sendAhead(push, asked, answer.answered))];
    const in_doubt = answered.find((part) => part.in_doubt !== undefined)?.in_doubt;
    if (answer.outcome !== 'ok' || in_doubt !== undefined) {
      this.#keep(push.delivery_id, answered);
      return answer.outcome === 'ok'
        ? { not_reached: `an answer could not be sent: ${in_doubt}` }
        : failureOf({ ...answer, detail: detailWithoutSecrets(answer.detail, this.#local.headers) });
    }
    this.#answered.delete(push.delivery_id);
    return { status_code: 200, body: repliesOf(answered, push.target_agents.length) };
  }

  /**
   * From the second attempt on, sends answers before the push has its result: the agent that failed may fail in every
   * attempt. The answers to the first attempt go into its response.
   *
   * So the way of an answer depends only on the number of the attempt and on the place of the agent. When another
   * process repeats the attempt, it asks all agents again, and their answers take the same way. The service stores an
   * answer once on each way: here by its idempotency key, in the response by its place.
   *
   * @returns the parts, without the answers that were sent
   */
  #sendAhead(
    push: PushInHand,
    { reply_token, agents }: Asked,
    parts: readonly KeptPart[],
  ): Promise<readonly KeptPart[]> {
    const send = async (part: KeptPart): Promise<KeptPart> => {
      const [agent = ''] = part.agents;
      const place = agents.indexOf(agent);
      const is_sent_ahead = (push.attempt ?? 1) > 1 && part.agents.length < agents.length && place < REPLIES_MAX;
      if (reply_token === null || !is_sent_ahead) return part;
      try {
        for (const [i, reply] of repliesIn(part.body).entries()) {
          const idempotency_key = `${push.delivery_id}:${place}:${i}`;
          await this.#client.sendReply(reply_token, named(reply, agent), { idempotency_key });
        }
        return { agents: part.agents, body: NO_REPLIES };
      } catch (error) {
        // The service does not have the answer, and does not take it in this way. So the answer goes into the response.
        const status = (error instanceof ConvokeError && error.status) || 0;
        if (status >= 400 && status < 429) return { agents: part.agents, body: part.body };
        return { ...part, in_doubt: (error as Error).message };
      }
    };
    return Promise.all(parts.map(send));
  }

  #keep(delivery_id: string, answered: KeptPart[]): void {
    if (answered.length === 0) return;
    this.#answered.delete(delivery_id);
    this.#answered.set(delivery_id, answered);
    const [oldest] = this.#answered.keys();
    if (this.#answered.size > PARTS_MAX && oldest !== undefined) this.#answered.delete(oldest);
  }

  /**
   * The messages before this push; if the key may not read them, only those that this machine got. A text says why they
   * could not be read: then the push must be made again.
   */
  async #historyOf(push: PushInHand, asked: Asked, limit: number): Promise<PastMessage[] | string> {
    const { meeting_id, seq } = push;
    if (limit === 0 || seq === null) return [];
    if (this.#history === null) {
      const read = await this.#readHistory(meeting_id, seq, limit);
      if (read !== null) return read;
      if (this.#history === null)
        note('the key may not read messages: the runtime gets only messages from now on as history');
      this.#history ??= new LocalHistory();
    }
    // Without the history and the token of the push: each kept message would keep them in memory.
    const { from_agent, agents: target_agents, message } = asked;
    this.#history.add(meeting_id, { seq, from_agent, target_agents, message });
    return this.#history.before(meeting_id, seq, limit);
  }

  /** @returns null when the key may not read messages; a text says why they could not be read */
  async #readHistory(meeting_id: string, before_seq: number, limit: number): Promise<PastMessage[] | string | null> {
    try {
      const { data } = await this.#client.listRawMessages(meeting_id, { before_seq, limit });
      return newest(
        data.map(({ seq, from_agent = null, target_agents, message }) => ({
          seq,
          from_agent,
          target_agents,
          message: parseExactly(message.text) as Record<string, unknown>,
        })),
      );
    } catch (error) {
      if (!(error instanceof ConvokeError) || error.code !== 'not_permitted') {
        return `the messages before this one could not be read: ${(error as Error).message}`;
      }
      return null;
    }
  }

  async #exchange(push: PushInHand, request: RuntimeRequest, agents: readonly string[]): Promise<Exchanged> {
    const [agent = ''] = agents;
    const key = agents.length === 1 ? `${push.delivery_id}:${encodeURIComponent(agent)}` : push.delivery_id;
    const headers = { 'idempotency-key': key, ...traceHeadersIn(push.headers), ...request.headers };
    const bytes_max = runtimeOf(this.#settings).responseBytesOf?.(this.#settings.options);
    const result = await this.#local.send({ ...request, headers }, push.signal, () => TURN_MS_MAX, bytes_max);
    if ('not_reached' in result) {
      return {
        outcome: 'unreachable',
        status_code: null,
        detail: result.not_reached,
        retry_after: null,
        body: '',
        excerpt: '',
      };
    }
    const { status_code, body = '', retry_after = null, is_cut = false } = result;
    const outcome = outcomeOfStatus(status_code, '2xx');
    const seen = { status_code, retry_after, body, excerpt: body };
    if (outcome === 'ok' && is_cut) return { ...seen, outcome: 'broken_response', detail: cutInWords(bytes_max) };
    return { ...seen, outcome, detail: '' };
  }
}

/** The answers in a part, with every digit of their numbers. */
function repliesIn(body: string): Answer[] {
  return (parseExactly(body) as { replies: Answer[] }).replies;
}

/** The answers of the agents of a push, as messages. */
function answersIn(answered: readonly AnsweredPart[]): Omit<PastMessage, 'seq'>[] {
  return answered.flatMap(({ agents, body }) =>
    repliesIn(body).map((reply) => ({
      from_agent: (typeof reply === 'object' ? reply.from_agent : undefined) ?? agents[0] ?? null,
      target_agents: null,
      message: typeof reply === 'string' ? { content: reply } : reply.message,
    })),
  );
}

/**
 * Makes a failure. Its status must be neither that of a success nor 410: after a 410 the service switches the instance
 * off.
 */
function failureOf({ status_code, detail, retry_after, excerpt }: RuntimeAnswer): PushResult {
  if (status_code === null) return { not_reached: detail };
  const is_failure = status_code >= 400 && status_code !== 410;
  return {
    status_code: is_failure ? status_code : 502,
    ...(retry_after !== null && { retry_after }),
    body: is_failure && excerpt !== '' ? excerpt : detail,
  };
}

function named(answer: Answer, from_agent: string): Exclude<Answer, string> {
  return typeof answer === 'string' ? { message: { content: answer }, from_agent } : { from_agent, ...answer };
}

/** The body of a response with the answers of the agents; with several agents, each answer names its agent. */
function repliesOf(answered: readonly AnsweredPart[], agents: number): string {
  const replies = answered.flatMap((part) => {
    const said = repliesIn(part.body);
    const [from_agent = ''] = part.agents;
    return agents === 1 || part.agents.length > 1 ? said : said.map((each) => named(each, from_agent));
  });
  while (replies.length > 0) {
    const body = JSON.stringify({ replies });
    if (Buffer.byteLength(body) <= BODY_BYTES_MAX) return body;
    replies.pop();
    note(`an answer is left out: the service takes ${BODY_BYTES_MAX} bytes of answers for a push`);
  }
  return '';
}
