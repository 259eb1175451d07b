/**
 * The trace that a message belongs to, as in W3C Trace Context (https://www.w3.org/TR/trace-context/). The trace is one
 * text: the traceparent and, if there is a tracestate, a space and the tracestate.
 */
export type TraceContext = string;

/** The ids of a traceparent. `traceIds` does not check the ids: `traceOf` and `isTrace` do. */
export interface TraceIds {
  trace_id: string;
  span_id: string;
  flags: number;
}

/** The length of a traceparent of version 00. A traceparent of a later version may be longer. */
const TRACEPARENT_CHARS = 55;
const TRACEPARENT = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;
const NO_ID = /^0+$/;

/**
 * W3C asks every system to pass on this many characters of a tracestate. A longer tracestate loses its last members.
 */
export const TRACESTATE_CHARS_MAX = 512;
const MEMBERS_MAX = 32;
const MEMBER = /^[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/**
 * The trace of a request by its headers `traceparent` and `tracestate`. Null when there is none, or when the
 * traceparent cannot be read: tracing must never keep a message from being sent. A tracestate that cannot be read is
 * left out.
 */
export function traceOf(traceparent: string | undefined, tracestate: string | undefined): TraceContext | null {
  const parent = traceparent === undefined ? null : parentOf(traceparent);
  if (parent === null) return null;
  const state = tracestate === undefined ? '' : stateOf(tracestate);
  return state === '' ? parent : `${parent} ${state}`;
}

/** Whether a text is a trace in the form that `traceOf` returns. */
export function isTrace(text: string): text is TraceContext {
  const { traceparent, tracestate } = traceHeaders(text);
  return traceOf(traceparent, tracestate) === text;
}

/** The headers that carry a trace. */
export function traceHeaders(trace: TraceContext): { traceparent: string; tracestate?: string } {
  const traceparent = trace.slice(0, TRACEPARENT_CHARS);
  return trace.length === TRACEPARENT_CHARS
    ? { traceparent }
    : { traceparent, tracestate: trace.slice(TRACEPARENT_CHARS + 1) };
}

/** Picks the headers of a push that carry a trace. */
export function traceHeadersIn({ traceparent, tracestate }: Record<string, string>): Record<string, string> {
  return { ...(traceparent !== undefined && { traceparent }), ...(tracestate !== undefined && { tracestate }) };
}

/** The ids in a trace. */
export function traceIds(trace: TraceContext): TraceIds {
  const [, trace_id = '', span_id = '', flags = ''] = trace.slice(0, TRACEPARENT_CHARS).split('-');
  return { trace_id, span_id, flags: Number.parseInt(flags, 16) };
}

/** Reads a traceparent of any version as version 00, as the recommendation says. */
function parentOf(text: string): string | null {
  const parent = text.slice(0, TRACEPARENT_CHARS);
  const version = text.slice(0, 2);
  if (!TRACEPARENT.test(parent) || version === 'ff') return null;
  if (text.length > TRACEPARENT_CHARS && (version === '00' || text[TRACEPARENT_CHARS] !== '-')) return null;
  const { trace_id, span_id } = traceIds(parent);
  return NO_ID.test(trace_id) || NO_ID.test(span_id) ? null : `00${parent.slice(2)}`;
}

/**
 * Empty when the tracestate cannot be read. More than 32 members are no list of the recommendation
 * (https://www.w3.org/TR/trace-context/#list), whose own tests expect that such a tracestate is discarded.
 */
function stateOf(text: string): string {
  const members = text
    .split(',', MEMBERS_MAX + 1)
    .map((member) => member.trim())
    .filter((member) => member !== '');
  if (members.length > MEMBERS_MAX || !members.every((member) => MEMBER.test(member))) return '';
  let state = '';
  for (const member of members) {
    const longer = state === '' ? member : `${state},${member}`;
    if (longer.length > TRACESTATE_CHARS_MAX) break;
    state = longer;
  }
  return state;
}
