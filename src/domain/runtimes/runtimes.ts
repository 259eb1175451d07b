/** The known runtimes. A registration with another runtime is refused. */
import { invalidField } from '../problem.ts';
import { checkedOptions, type Options } from './options.ts';
import { a2a } from './a2a.ts';
import { dify } from './dify.ts';
import { hermes } from './hermes.ts';
import { langgraph } from './langgraph.ts';
import { mcp_events } from './mcp_events.ts';
import { openai } from './openai.ts';
import { openclaw } from './openclaw.ts';
import type { Runtime } from './runtime.ts';
import { template } from './template.ts';

export const RUNTIMES = {
  openai,
  openclaw,
  hermes,
  template,
  a2a,
  langgraph,
  dify,
  mcp_events,
} as const satisfies Record<string, Runtime>;

/** A runtime with a shape of its own. `spec`, the body of the specification, is not such a runtime. */
export type ShapedName = keyof typeof RUNTIMES;
export type RuntimeName = 'spec' | ShapedName;

export const RUNTIME_NAMES = ['spec', ...Object.keys(RUNTIMES)] as RuntimeName[];

/** The runtimes that a registration of an agent may name. A subscription of MCP Events registers itself. */
export const AGENT_RUNTIME_NAMES = RUNTIME_NAMES.filter((name) => name !== 'mcp_events');

export function isShapedName(name: unknown): name is ShapedName {
  return typeof name === 'string' && Object.hasOwn(RUNTIMES, name);
}

/** The runtime of an instance, with its options. */
export interface RuntimeSettings {
  name: ShapedName;
  options: Options;
}

/** How long an attempt may take when nothing else is set, in seconds. */
export const TIMEOUT_S = 5;
export const TIMEOUT_S_MAX = 600;

export function runtimeOf({ name }: Pick<RuntimeSettings, 'name'>): Runtime {
  return RUNTIMES[name];
}

/**
 * The runtime in a registration; null for `spec`.
 *
 * @throws Problem `invalid_fields`
 */
export function checkedRuntime(
  name: RuntimeName = 'spec',
  options: Record<string, unknown> | undefined,
  path = 'runtime_options',
): RuntimeSettings | null {
  if (name === 'spec') {
    if (options !== undefined && Object.keys(options).length > 0)
      throw invalidField(path, 'is for a runtime; name it in runtime');
    return null;
  }
  return { name, options: checkedOptions(RUNTIMES[name].options, options ?? {}, path) };
}
