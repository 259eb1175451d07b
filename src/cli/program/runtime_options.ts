/** The options of commands for a runtime: `--runtime`, and the options of the runtime itself. */
import { readFile } from 'node:fs/promises';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { Problem } from '../../domain/problem.ts';
import {
  AGENT_RUNTIME_NAMES,
  checkedRuntime,
  isShapedName,
  type RuntimeName,
  RUNTIMES,
  type RuntimeSettings,
} from '../../domain/runtimes/runtimes.ts';
import { collect } from './api.ts';
import { CommandFailure, EXIT } from './exit.ts';

export interface RuntimeChoice {
  runtime?: RuntimeName;
  model?: string;
  option?: string[];
}

export function withRuntime(command: Command): Command {
  return command
    .addOption(
      new Option('--runtime <name>', 'the runtime at that address; `convoke runtimes` lists them')
        .choices(AGENT_RUNTIME_NAMES)
        .argParser(agentRuntime),
    )
    .option('--model <model>', 'the model of the runtime; as --option model=…')
    .option(
      '--option <name=value>',
      'an option of the runtime; name=@file reads the value from a file; repeat it for more',
      collect,
    );
}

/** @throws InvalidArgumentError for a name that is not a runtime */
function agentRuntime(name: string): RuntimeName {
  const known = AGENT_RUNTIME_NAMES.find((each) => each === name);
  if (known !== undefined) return known;
  if (name === 'mcp_events')
    throw new InvalidArgumentError(
      'No agent uses it: a program registers its subscription itself, with events/subscribe (docs/mcp.md, Webhooks of a program).',
    );
  throw new InvalidArgumentError(`Allowed choices are ${AGENT_RUNTIME_NAMES.join(', ')}.`);
}

/**
 * The runtime in the options; undefined when there is none.
 *
 * @throws CommandFailure that names the wrong option
 */
export async function runtimeChosen({
  runtime,
  model,
  option = [],
}: RuntimeChoice): Promise<RuntimeSettings | undefined> {
  if (runtime === undefined) {
    if (model === undefined && option.length === 0) return undefined;
    throw new CommandFailure(EXIT.usage, 'options belong to a runtime: name it with --runtime');
  }
  const given: Record<string, unknown> = model === undefined ? {} : { model };
  for (const text of option) {
    const [, name = '', value = ''] = /^(\w+)=([^]*)$/.exec(text) ?? [];
    if (name === '') throw new CommandFailure(EXIT.usage, '--option must look like name=value');
    given[name] = await valueOf(runtime, name, value);
  }
  try {
    return checkedRuntime(runtime, Object.keys(given).length === 0 ? undefined : given, '--option ') ?? undefined;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    throw new CommandFailure(EXIT.usage, error.message.replace('--option .', '--option '));
  }
}

/**
 * The value of an option. A value of the type text or choice is taken as it is, every other value is JSON. `@FILE`
 * stands for what is in the file.
 */
async function valueOf(runtime: RuntimeName, name: string, text: string): Promise<unknown> {
  const value = text.startsWith('@') ? await contentOf(text.slice(1)) : text;
  const rule = isShapedName(runtime)
    ? (RUNTIMES[runtime].options as Record<string, { type: string }>)[name]
    : undefined;
  if (rule === undefined || rule.type === 'text' || rule.type === 'choice') return value;
  try {
    return JSON.parse(value) as unknown;
  } catch {
    return value;
  }
}

async function contentOf(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw new CommandFailure(EXIT.usage, (error as Error).message);
  }
}
