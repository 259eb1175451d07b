import { numberOption, type Options, textOption } from './options.ts';
import type { Asked, Meaning, Probed, Runtime, RuntimeResponse } from './runtime.ts';
import {
  adviceForProbe,
  AGENT,
  agentOf,
  answersOf,
  at,
  below,
  failed,
  HISTORY_DEFAULT,
  HISTORY_OPTION,
  isSuccess,
  jsonOf,
  JSON_HEADERS,
  missedInWords,
  nameOf,
  NO_REPLY,
  NO_REPLY_OPTION,
  notUnderstood,
  textOfContent,
  textOfMessage,
} from './words.ts';

/** Stands for the meeting in `system`. */
const MEETING = '{{meeting_id}}';

const COMPLETIONS = '/chat/completions';
const MODELS_NAMED_MAX = 5;

/** Any server that speaks OpenAI's chat completions: llama.cpp, Ollama, vLLM, OpenClaw. */
export const openai: Runtime = {
  says: 'a server that speaks OpenAI’s chat completions: llama.cpp, Ollama, vLLM, OpenClaw',
  options: {
    model: {
      type: 'text',
      chars_max: 200,
      is_required: true,
      says: `the model, as the server calls it; ${AGENT} in it stands for the agent`,
    },
    system: {
      type: 'text',
      chars_max: 8_000,
      says: `who the agent is; ${AGENT} and ${MEETING} in it stand for themselves. One sentence about the meeting when absent`,
    },
    history: HISTORY_OPTION,
    no_reply: NO_REPLY_OPTION,
    max_tokens: { type: 'integer', min: 1, max: 100_000, says: 'the most tokens of an answer' },
    temperature: {
      type: 'json',
      check: (value) => (typeof value === 'number' && value >= 0 && value <= 2 ? null : 'must be a number from 0 to 2'),
      says: 'how freely the model chooses its words, from 0 to 2',
    },
  },
  timeout_s: 120,
  historyOf: (options) => numberOption(options, 'history', HISTORY_DEFAULT),
  asksEach: () => true,
  requestOf(asked, options, base_url) {
    const agent = agentOf(asked);
    const { max_tokens, temperature } = options;
    const body = {
      model: filled(options['model'] as string, asked, agent),
      messages: messagesOf(asked, agent, options),
      user: `${asked.meeting_id}:${agent}`,
      ...(max_tokens !== undefined && { max_tokens }),
      ...(temperature !== undefined && { temperature }),
    };
    return { method: 'POST', url: urlOf(base_url), headers: JSON_HEADERS, body: JSON.stringify(body) };
  },
  read(response, asked, options): Meaning {
    if (!isSuccess(response)) return failed(response);
    const choice = at(jsonOf(response.body), 'choices', 0);
    if (choice === undefined) return notUnderstood('its body has no choices[0]: this is no chat completion');
    const text = textOfContent(at(choice, 'message', 'content'));
    return { kind: 'answered', answers: answersOf(text, agentOf(asked), textOption(options, 'no_reply', NO_REPLY)) };
  },
  probeOf: (_options, base_url) => ({
    method: 'GET',
    url: modelsUrlOf(base_url),
    headers: { accept: 'application/json' },
    body: '',
  }),
  readProbe,
};

/** The stored address may already have the path of the completions, and a query: `…/chat/completions?api-version=…`. */
function urlOf(base_url: string): string {
  return new URL(base_url).pathname.endsWith(COMPLETIONS) ? base_url : below(base_url, COMPLETIONS);
}

function modelsUrlOf(base_url: string): string {
  const url = new URL(base_url);
  if (url.pathname.endsWith(COMPLETIONS)) url.pathname = url.pathname.slice(0, -COMPLETIONS.length);
  return below(url.href, '/models');
}

/**
 * The conversation. Names are in the text, because many servers refuse or ignore the field `name`. Several messages of
 * others in a row become one message: the templates of many models need alternating roles that begin with the user.
 */
function messagesOf(asked: Asked, agent: string, options: Options): { role: string; content: string }[] {
  const no_reply = textOption(options, 'no_reply', NO_REPLY);
  const system =
    options['system'] === undefined
      ? `You are ${agent}, an agent in the meeting ${asked.meeting_id}. Each line begins with the name of who says it. Answer as ${agent}, in your own words, without a name before them. If you have nothing to say, answer ${no_reply}.`
      : filled(options['system'] as string, asked, agent);
  const missed = missedInWords(asked);
  const messages = [{ role: 'system', content: missed === null ? system : `${system}\n\n${missed}` }];
  for (const { from_agent, message } of [...asked.history, asked]) {
    const is_own = from_agent === agent && messages.length > 1;
    const role = is_own ? 'assistant' : 'user';
    const text = textOfMessage(message);
    const content = is_own ? text : `${nameOf(from_agent, message)}: ${text}`;
    const last = messages.at(-1);
    if (last?.role === role) last.content += `\n\n${content}`;
    else messages.push({ role, content });
  }
  return messages;
}

function filled(text: string, { meeting_id }: Asked, agent: string): string {
  return text.replaceAll(AGENT, () => agent).replaceAll(MEETING, () => meeting_id);
}

function readProbe(response: RuntimeResponse, options: Options): Probed {
  const refused = adviceForProbe(response, '/models');
  if (refused !== null) return { is_ok: false, advice: refused };
  const data = at(jsonOf(response.body), 'data');
  const model = options['model'] as string;
  if (!Array.isArray(data)) {
    return {
      is_ok: false,
      advice:
        'It lists no models: check that webhook_url ends where /chat/completions begins, as in http://127.0.0.1:11434/v1.',
    };
  }
  const known = data.map((each) => at(each, 'id')).filter((id) => typeof id === 'string');
  // Ollama knows `llama3.2` as `llama3.2:latest`.
  const has_it = known.some((id) => id === model || id.startsWith(`${model}:`));
  if (has_it || model.includes(AGENT)) return { is_ok: true, advice: `It is there, and has the model ${model}.` };
  const named = known.slice(0, MODELS_NAMED_MAX).join(', ');
  return {
    is_ok: false,
    advice: `It does not list the model ${model} of runtime_options.model; it has ${named === '' ? 'none' : named}.`,
  };
}
