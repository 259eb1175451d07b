import { numberOption, type Options, textOption } from './options.ts';
import { promptOf } from './prompt.ts';
import type { Asked, Meaning, Probed, Runtime, RuntimeResponse } from './runtime.ts';
import {
  agentOf,
  at,
  below,
  failed,
  HISTORY_OPTION,
  isSuccess,
  jsonOf,
  JSON_HEADERS,
  notUnderstood,
  shortened,
  whyOf,
} from './words.ts';

/** In the option `agent`, this stands for the id of the agent in the meeting. */
const AGENT = '{{agent_id}}';
const SESSIONS = ['persistent', 'isolated'] as const;
const KEY_PREFIX = 'hook:convoke:';
/**
 * The session key of a webhook test. No gateway allows this key, so no agent runs, and the response says which keys are
 * allowed.
 */
const PROBE_KEY = 'webhook-test:convoke';

/**
 * The hooks of an OpenClaw gateway. The response to a hook never has the text of the agent, so the agent answers with a
 * request of its own.
 */
export const openclaw: Runtime = {
  says: 'the hooks of an OpenClaw gateway; the agent answers with a tool that makes HTTP requests',
  options: {
    agent: {
      type: 'text',
      chars_max: 200,
      default: AGENT,
      says: `the agent, as the gateway calls it; ${AGENT} in it stands for the agent in the meeting`,
    },
    session: {
      type: 'choice',
      choices: SESSIONS,
      default: 'persistent',
      says: 'persistent: the agent remembers the meeting, which the gateway must allow; isolated: each message is a session of its own',
    },
    history: {
      ...HISTORY_OPTION,
      default: 0,
      says: 'how many messages of the meeting before this one it is given: it remembers a persistent session',
    },
  },
  // A run may take as long as its model thinks. The attempt waits for the end of the run, because the gateway would
  // refuse the next run of the session when the present run takes longer than 15 s.
  timeout_s: 600,
  historyOf: (options) => numberOption(options, 'history', 0),
  asksEach: () => true,
  requestOf(asked, options, base_url) {
    const session = isPersistent(options) ? { sessionKey: sessionKeyOf(asked), sessionMode: 'persistent' } : {};
    const body = {
      message: promptOf(asked),
      name: 'Convoke',
      agentId: agentAt(options, agentOf(asked)),
      ...session,
      wakeMode: 'now',
      deliver: false,
      waitForCompletion: true,
    };
    // The gateway recognizes a repeated request by this key, and compares the requests too. The gateway ignores a key
    // of more than 256 characters.
    const headers = { ...JSON_HEADERS, 'idempotency-key': asked.delivery_id };
    return { method: 'POST', url: urlOf(base_url), headers, body: JSON.stringify(body) };
  },
  read(response): Meaning {
    if (!isSuccess(response)) return { ...failed(response), ...whyRefused(response) };
    // The hook decided to do nothing.
    if (response.status_code === 204) return { kind: 'answered', answers: [] };
    const body = jsonOf(response.body);
    if (at(body, 'ok') !== true) return notUnderstood('its body has no "ok": true, so it is no hook of OpenClaw');
    const status = at(body, 'completion', 'status');
    if (typeof status !== 'string' || status === 'ok') return { kind: 'answered', answers: [] };
    // The agent has run. A retry would not help: the gateway would give the same result for the same request.
    const run_id = whyOf(at(body, 'runId'));
    const note = `the run of the agent ended as ${shortened(status)}; the log of OpenClaw says why, at run ${run_id}`;
    return { kind: 'answered', answers: [], note };
  },
  probeOf: (options, base_url, agents) => ({
    method: 'POST',
    url: urlOf(base_url),
    headers: JSON_HEADERS,
    body: JSON.stringify({
      message: 'This is a test of the hook by Convoke. There is nothing to do.',
      name: 'Convoke',
      agentId: agentAt(options, agents[0] ?? ''),
      sessionKey: PROBE_KEY,
      sessionMode: 'persistent',
      deliver: false,
    }),
  }),
  readProbe,
};

function isPersistent(options: Options): boolean {
  return textOption(options, 'session', 'persistent') === 'persistent';
}

function agentAt(options: Options, agent: string): string {
  return textOption(options, 'agent', AGENT).replaceAll(AGENT, () => agent);
}

function urlOf(base_url: string): string {
  return new URL(base_url).pathname.endsWith('/agent') ? base_url : below(base_url, '/agent');
}

/** The key of the session, one for each meeting and agent. */
function sessionKeyOf(asked: Asked): string {
  return `${KEY_PREFIX}${keyPart(asked.meeting_id)}:${keyPart(agentOf(asked))}`;
}

/** The gateway ignores the case of a key, so meetings that differ only in case need different keys. */
function keyPart(id: string): string {
  return id.replaceAll(/[^a-z0-9._~-]/gu, (char) =>
    [...Buffer.from(char)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join(''),
  );
}

function errorIn({ body }: RuntimeResponse): string {
  const error = at(jsonOf(body), 'error');
  return typeof error === 'string' ? error : '';
}

function whyRefused(response: RuntimeResponse): { detail?: string } {
  const error = errorIn(response);
  return error === '' ? {} : { detail: `answered ${response.status_code}: ${shortened(error)}` };
}

const WRONG = {
  401: '401: OpenClaw wants its hooks.token; set webhook_headers.authorization to Bearer and that token.',
  404: '404: OpenClaw has no hooks here; set its hooks.enabled to true, and let webhook_url end with its hooks.path, as in http://127.0.0.1:18789/hooks.',
  405: '405: OpenClaw has no hooks here; set its hooks.enabled to true, and let webhook_url end with its hooks.path, as in http://127.0.0.1:18789/hooks.',
  429: '429: OpenClaw has seen too many wrong tokens; set webhook_headers.authorization to Bearer and its hooks.token, and test again in a minute.',
} as const;

const HOW_TO_ALLOW = `set hooks.allowRequestSessionKey of OpenClaw to true and hooks.allowedSessionKeyPrefixes to ["hook:"], or runtime_options.session to isolated`;

function readProbe(response: RuntimeResponse, options: Options): Probed {
  const wrong = (advice: string): Probed => ({ is_ok: false, advice });
  const right = { is_ok: true, advice: 'OpenClaw is there, and takes hooks for this agent.' };
  const { status_code } = response;
  if (isSuccess(response)) return right;
  if (status_code in WRONG) return wrong(WRONG[status_code as keyof typeof WRONG]);
  const error = errorIn(response);
  if (status_code !== 400 || error === '') return wrong(`${status_code}: the log of OpenClaw says why.`);
  const [, prefixes] = /must start with one of: (.*)$/.exec(error) ?? [];
  if (prefixes !== undefined) {
    const is_allowed = prefixes.split(', ').some((prefix) => KEY_PREFIX.startsWith(prefix));
    if (is_allowed || !isPersistent(options)) return right;
    return wrong(`hooks.allowedSessionKeyPrefixes of OpenClaw has ${shortened(prefixes)}; add "${KEY_PREFIX}" to it.`);
  }
  if (/allowRequestSessionKey|allowedSessionKeyPrefixes/.test(error)) {
    return isPersistent(options) ? wrong(`OpenClaw keeps no session for each meeting: ${HOW_TO_ALLOW}.`) : right;
  }
  if (error.includes('allowedAgentIds')) return wrong('Add the agent to hooks.allowedAgentIds of OpenClaw.');
  if (/agentId/.test(error)) {
    return wrong(
      `OpenClaw says: ${shortened(error)}. Set runtime_options.agent to an agent in agents.list of OpenClaw.`,
    );
  }
  return wrong(`400: OpenClaw says: ${shortened(error)}.`);
}
