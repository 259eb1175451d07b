import { numberOption, type Options, textOption } from './options.ts';
import type { Asked, Meaning, Probed, Runtime, RuntimeRequest, RuntimeResponse } from './runtime.ts';
import {
  adviceForProbe,
  agentOf,
  answersOf,
  at,
  below,
  conversationOf,
  failed,
  HISTORY_OPTION,
  isSuccess,
  jsonOf,
  NO_REPLY,
  NO_REPLY_OPTION,
  notUnderstood,
  whyOf,
} from './words.ts';

/** The form of a request: A2A 1.0 over HTTP+JSON, A2A 1.0 over JSON-RPC, or A2A 0.3 over JSON-RPC. */
const PROTOCOLS = ['1.0', '1.0-jsonrpc', '0.3'] as const;
type Protocol = (typeof PROTOCOLS)[number];

const A2A_JSON = 'application/a2a+json';
/** The pause between two requests for the state of a task that is not finished. */
const LOOK_MS = 1_000;

/** The code of an error of JSON-RPC that means the same as a 404. */
const TASK_NOT_FOUND = -32_001;

/** The methods of JSON-RPC. */
const METHODS = {
  '1.0-jsonrpc': { send: 'SendMessage', get: 'GetTask' },
  '0.3': { send: 'message/send', get: 'tasks/get' },
} as const;

/** An agent that speaks Agent2Agent. */
export const a2a: Runtime = {
  says: 'an agent that speaks A2A (Agent2Agent), 1.0 or 0.3',
  options: {
    protocol: {
      type: 'choice',
      choices: PROTOCOLS,
      default: '1.0',
      says: 'the version of the agent, and how it is written: 1.0 is HTTP+JSON, 0.3 is JSON-RPC',
    },
    history: {
      ...HISTORY_OPTION,
      default: 0,
      says: 'how many messages before this one it is given: it remembers a context',
    },
    no_reply: NO_REPLY_OPTION,
  },
  timeout_s: 120,
  historyOf: (options) => numberOption(options, 'history', 0),
  asksEach: () => true,
  requestOf: (asked, options, base_url) => sendOf(asked, protocolOf(options), base_url),
  read(response, asked, options, base_url) {
    if (!isSuccess(response)) return failed(response);
    const body = jsonOf(response.body);
    const error = at(body, 'error', 'message');
    if (at(body, 'error', 'code') === TASK_NOT_FOUND) {
      return { kind: 'failed', outcome: 'bad_status', detail: 'answered that it does not know the task any more' };
    }
    if (typeof error === 'string') return notUnderstood(`it refused the request: ${whyOf(error)}`);
    const protocol = protocolOf(options);
    const result = protocol === '1.0' ? body : at(body, 'result');
    const no_reply = textOption(options, 'no_reply', NO_REPLY);
    const textOf = (parts: unknown): Meaning => ({
      kind: 'answered',
      answers: answersOf(textOfParts(parts), agentOf(asked), no_reply),
    });
    // In 0.3 the field `kind` distinguishes messages and tasks. The response to tasks/get is the task itself.
    const message = at(result, 'kind') === 'message' ? result : at(result, 'message');
    if (message !== undefined && at(result, 'status') === undefined) return textOf(at(message, 'parts'));
    const task = at(result, 'task') ?? result;
    const state = stateOf(task);
    if (state === null) return notUnderstood('its body has neither a message nor a task');
    switch (state) {
      case 'completed':
        return textOf(partsOf(task));
      case 'input_required':
      case 'auth_required':
        return textOf(at(task, 'status', 'message', 'parts'));
      case 'rejected':
      case 'canceled':
        return { kind: 'answered', answers: [], note: `the agent ended the task as ${state}` };
      case 'failed':
        return {
          kind: 'failed',
          outcome: 'bad_status',
          detail: `the task of the agent failed: ${whyOf(textOfParts(at(task, 'status', 'message', 'parts')))}`,
        };
      default: {
        const id = at(task, 'id');
        if (typeof id !== 'string') return notUnderstood('its task has no id');
        return {
          kind: 'later',
          request: getOf(id, asked, protocol, base_url),
          pause_ms: LOOK_MS,
          // The agent already has the message. A retry would make the agent run twice.
          if_late: {
            kind: 'answered',
            answers: [],
            note: 'the task of the agent was not finished in time; its answer is lost',
          },
        };
      }
    }
  },
  probeOf: (options, base_url) => ({
    method: 'GET',
    url: new URL('/.well-known/agent-card.json', base_url).href,
    headers: { accept: 'application/json', 'a2a-version': versionOf(protocolOf(options)) },
    body: '',
  }),
  readProbe,
};

function protocolOf(options: Options): Protocol {
  return textOption(options, 'protocol', '1.0') as Protocol;
}

function sendOf(asked: Asked, protocol: Protocol, base_url: string): RuntimeRequest {
  const agent = agentOf(asked);
  const text = conversationOf(asked);
  const { delivery_id, meeting_id, message_id, seq, from_agent, missed } = asked;
  const about = {
    messageId: `${delivery_id}:${agent}`,
    contextId: `${meeting_id}:${agent}`,
    metadata: {
      meeting_id,
      message_id,
      seq,
      agent_id: agent,
      ...(from_agent !== null && { from_agent }),
      ...(missed > 0 && { missed }),
    },
  };
  if (protocol === '0.3') {
    const message = { kind: 'message', role: 'user', parts: [{ kind: 'text', text }], ...about };
    return rpc(protocol, 'send', { message, configuration: { blocking: false } }, asked, base_url);
  }
  const message = { role: 'ROLE_USER', parts: [{ text }], ...about };
  const params = { message, configuration: { returnImmediately: true, acceptedOutputModes: ['text/plain'] } };
  if (protocol === '1.0-jsonrpc') return rpc(protocol, 'send', params, asked, base_url);
  return {
    method: 'POST',
    url: below(base_url, '/message:send'),
    headers: { 'content-type': A2A_JSON, accept: A2A_JSON, 'a2a-version': '1.0' },
    body: JSON.stringify(params),
  };
}

function getOf(task_id: string, asked: Asked, protocol: Protocol, base_url: string): RuntimeRequest {
  if (protocol !== '1.0') return rpc(protocol, 'get', { id: task_id }, asked, base_url);
  return {
    method: 'GET',
    url: below(base_url, `/tasks/${encodeURIComponent(task_id)}`),
    headers: { accept: A2A_JSON, 'a2a-version': '1.0' },
    body: '',
  };
}

function rpc(
  protocol: Exclude<Protocol, '1.0'>,
  what: 'send' | 'get',
  params: object,
  { delivery_id }: Asked,
  base_url: string,
): RuntimeRequest {
  return {
    method: 'POST',
    url: base_url,
    headers: {
      'content-type': 'application/json',
      accept: 'application/json',
      'a2a-version': versionOf(protocol),
    },
    body: JSON.stringify({ jsonrpc: '2.0', id: delivery_id, method: METHODS[protocol][what], params }),
  };
}

function versionOf(protocol: Protocol): string {
  return protocol === '0.3' ? '0.3' : '1.0';
}

/** `TASK_STATE_INPUT_REQUIRED` of 1.0 and `input-required` of 0.3 are `input_required`. */
function stateOf(task: unknown): string | null {
  const state = at(task, 'status', 'state');
  return typeof state === 'string'
    ? state
        .replace(/^TASK_STATE_/, '')
        .toLowerCase()
        .replaceAll('-', '_')
    : null;
}

/** The artifacts of a finished task; when it has no artifacts, its last message. */
function partsOf(task: unknown): unknown {
  const artifacts = at(task, 'artifacts');
  const parts = Array.isArray(artifacts) ? artifacts.flatMap((artifact) => at(artifact, 'parts') ?? []) : [];
  return parts.length > 0 ? parts : at(task, 'status', 'message', 'parts');
}

function textOfParts(parts: unknown): string {
  if (!Array.isArray(parts)) return '';
  return parts
    .map((part) => at(part, 'text'))
    .filter((text) => typeof text === 'string')
    .join('\n');
}

function readProbe(response: RuntimeResponse, options: Options): Probed {
  const refused = adviceForProbe(response, 'agent card');
  if (refused !== null) return { is_ok: false, advice: refused };
  const card = jsonOf(response.body);
  const name = at(card, 'name');
  if (typeof name !== 'string') {
    return { is_ok: false, advice: 'What is at /.well-known/agent-card.json is no agent card: check webhook_url.' };
  }
  const protocol = protocolOf(options);
  const spoken = spokenBy(card);
  if (spoken.includes(protocol)) return { is_ok: true, advice: `${name} is there, and speaks A2A ${protocol}.` };
  const others =
    spoken.length === 0 ? 'its card names none that Convoke speaks' : `its card names ${spoken.join(', ')}`;
  return { is_ok: false, advice: `${name} does not speak runtime_options.protocol ${protocol}; ${others}.` };
}

function spokenBy(card: unknown): Protocol[] {
  const interfaces = at(card, 'supportedInterfaces');
  const spoken = (Array.isArray(interfaces) ? interfaces : []).flatMap((each): Protocol[] => {
    const [version, binding] = [at(each, 'protocolVersion'), at(each, 'protocolBinding')];
    if (version === '1.0' && binding === 'HTTP+JSON') return ['1.0'];
    if (version === '1.0' && binding === 'JSONRPC') return ['1.0-jsonrpc'];
    return version === '0.3' && binding === 'JSONRPC' ? ['0.3'] : [];
  });
  const version = at(card, 'protocolVersion');
  const is_old = typeof version === 'string' && version.startsWith('0.3');
  return [...new Set(is_old ? [...spoken, '0.3' as const] : spoken)];
}
