import { createHash } from 'node:crypto';
import { eventsOf, STREAM_BYTES_MAX, type StreamEvent } from './event_stream.ts';
import { numberOption, type Options, textOption } from './options.ts';
import type { Asked, Meaning, Probed, Runtime, RuntimeResponse } from './runtime.ts';
import {
  adviceForProbe,
  AGENT,
  agentOf,
  answersOf,
  at,
  below,
  conversationOf,
  failed,
  HISTORY_OPTION,
  isSuccess,
  jsonOf,
  JSON_HEADERS,
  NO_REPLY,
  NO_REPLY_OPTION,
  notUnderstood,
  textOfContent,
  whyOf,
} from './words.ts';

/** The namespace of the ids of threads. It may be any UUID that never changes. */
const THREADS = '5c4b5d39-2b0e-4f5c-9a6e-0d9f3c1f7a21';
/** How many assistants fit into the part of a response that is read. */
const ASSISTANTS_MAX = 100;
const ASSISTANTS_NAMED_MAX = 5;

/** An agent server of LangGraph: `langgraph dev`, or a deployed server. */
export const langgraph: Runtime = {
  says: 'an agent server of LangGraph: langgraph dev, or a deployment',
  options: {
    assistant_id: {
      type: 'text',
      chars_max: 200,
      is_required: true,
      says: `the assistant, or the name of its graph in langgraph.json; ${AGENT} in it stands for the agent`,
    },
    history: {
      ...HISTORY_OPTION,
      default: 0,
      says: 'how many messages before this one it is given: it remembers its thread',
    },
    no_reply: NO_REPLY_OPTION,
  },
  timeout_s: 120,
  historyOf: (options) => numberOption(options, 'history', 0),
  asksEach: () => true,
  responseBytesOf: () => STREAM_BYTES_MAX,
  /**
   * Uses the stream, which has only the messages that the nodes of the graph add. The response of `runs/wait` has every
   * message of the thread. That response grows with the meeting, until it is longer than a response may be.
   */
  requestOf(asked, options, base_url) {
    const agent = agentOf(asked);
    const { meeting_id, message_id, seq, from_agent, missed } = asked;
    const body = {
      assistant_id: assistantOf(options, agent),
      input: { messages: [{ role: 'user', id: idOf(asked), content: conversationOf(asked) }] },
      stream_mode: ['updates'],
      if_not_exists: 'create',
      multitask_strategy: 'enqueue',
      // When the attempt is over, nobody reads the answer of this run, and the next attempt begins a run of its own. So
      // the run is cancelled.
      on_disconnect: 'cancel',
      metadata: {
        meeting_id,
        message_id,
        seq,
        agent_id: agent,
        ...(from_agent !== null && { from_agent }),
        ...(missed > 0 && { missed }),
      },
    };
    const url = below(base_url, `/threads/${threadOf(meeting_id, agent)}/runs/stream`);
    return { method: 'POST', url, headers: { ...JSON_HEADERS, accept: '*/*' }, body: JSON.stringify(body) };
  },
  read(response, asked, options): Meaning {
    if (!isSuccess(response)) return failed(response);
    const events = eventsOf(response.body);
    if (!events.some(({ event }) => event === 'metadata')) {
      return notUnderstood('its body is not the stream of a run: this is no agent server of LangGraph');
    }
    const error = events.find(({ event }) => event === 'error');
    if (error !== undefined) {
      const why = whyOf(at(error.data, 'message'));
      return { kind: 'failed', outcome: 'bad_status', detail: `the run of the agent failed: ${why}` };
    }
    const updates = events.filter(({ event }) => event === 'updates');
    const last = addedBy(updates, idOf(asked)).findLast(isFromModel);
    const text = textOfContent(at(last, 'content'));
    const answers = answersOf(text, agentOf(asked), textOption(options, 'no_reply', NO_REPLY));
    const is_interrupted = updates.some(({ data }) => at(data, '__interrupt__') !== undefined);
    if (!is_interrupted) return { kind: 'answered', answers };
    return { kind: 'answered', answers, note: 'the graph waits at an interrupt, which Convoke does not resume' };
  },
  probeOf: (_options, base_url) => ({
    method: 'POST',
    url: below(base_url, '/assistants/search'),
    headers: JSON_HEADERS,
    body: JSON.stringify({ limit: ASSISTANTS_MAX, select: ['assistant_id', 'graph_id'] }),
  }),
  readProbe,
};

/** The id of the message in the thread. When a push is made again, its message replaces the previous one. */
function idOf(asked: Asked): string {
  return `${asked.delivery_id}:${agentOf(asked)}`;
}

function assistantOf(options: Options, agent: string): string {
  return (options['assistant_id'] as string).replaceAll(AGENT, () => agent);
}

/** The thread of an agent in a meeting: a UUID of version 5 (RFC 9562). */
function threadOf(meeting_id: string, agent: string): string {
  const namespace = Buffer.from(THREADS.replaceAll('-', ''), 'hex');
  const bytes = createHash('sha1')
    .update(namespace)
    .update(JSON.stringify([meeting_id, agent]))
    .digest();
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x50, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  return bytes.toString('hex', 0, 16).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

/**
 * The messages that the nodes of the graph have added after the sent message. A graph within the graph adds all earlier
 * messages again, so only the messages after the last copy of the sent message count.
 */
function addedBy(updates: readonly StreamEvent[], sent_id: string): unknown[] {
  const messages = updates
    .flatMap(({ data }) => (typeof data === 'object' && data !== null ? (Object.values(data) as unknown[]) : []))
    .flat()
    .flatMap((update) => at(update, 'messages') ?? []);
  return messages.slice(messages.findLastIndex((message) => at(message, 'id') === sent_id) + 1);
}

function isFromModel(message: unknown): boolean {
  const type = at(message, 'type');
  return type === 'ai' || type === 'AIMessageChunk' || at(message, 'role') === 'assistant';
}

function readProbe(response: RuntimeResponse, options: Options): Probed {
  const refused = adviceForProbe(response, '/assistants/search', 'x-api-key');
  if (refused !== null) return { is_ok: false, advice: refused };
  const found = jsonOf(response.body);
  if (!Array.isArray(found)) {
    return { is_ok: false, advice: 'It lists no assistants: check that webhook_url is where an agent server listens.' };
  }
  const wanted = options['assistant_id'] as string;
  const known = found.map((each) => [at(each, 'graph_id'), at(each, 'assistant_id')]);
  const is_known = wanted.includes(AGENT) || known.some((ids) => ids.includes(wanted));
  if (is_known) return { is_ok: true, advice: `It is there, and has the assistant ${wanted}.` };
  if (found.length === ASSISTANTS_MAX) {
    return { is_ok: true, advice: `It is there. Its first ${ASSISTANTS_MAX} assistants are not ${wanted}.` };
  }
  const names = known.map(([graph]) => graph).filter((graph) => typeof graph === 'string');
  const graphs = [...new Set(names)].slice(0, ASSISTANTS_NAMED_MAX).join(', ');
  return {
    is_ok: false,
    advice: `It has no assistant ${wanted} of runtime_options.assistant_id; langgraph.json names ${graphs === '' ? 'no graph' : graphs}.`,
  };
}
