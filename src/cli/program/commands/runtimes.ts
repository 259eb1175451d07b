import { Argument, Command } from 'commander';
import type { OptionRule } from '../../../domain/runtimes/options.ts';
import { AGENT_RUNTIME_NAMES, type RuntimeName, RUNTIMES, TIMEOUT_S } from '../../../domain/runtimes/runtimes.ts';
import { typed } from '../command_name.ts';
import { withExamples } from '../examples.ts';
import { note, print, printJson, printTable } from '../terminal.ts';

const SPEC_TEXT = 'any HTTP endpoint that takes the body of the specification; the default';

export function runtimesCommand(): Command {
  const command = new Command('runtimes')
    .description('list the agent runtimes that Convoke supports, or the options of one')
    .addArgument(new Argument('[name]').choices(AGENT_RUNTIME_NAMES))
    .option('--json', 'print JSON, for programs')
    .action((name: RuntimeName | undefined, { json }: { json?: true }) => {
      const runtimes = AGENT_RUNTIME_NAMES.filter((each) => name === undefined || each === name).map(described);
      if (json) return printJson(name === undefined ? runtimes : runtimes[0]);
      const [only] = runtimes;
      if (name === undefined || only === undefined) return printRuntimes(runtimes);
      printRuntime(only);
    });
  return withExamples(command, {
    'convoke runtimes': 'what there is',
    'convoke runtimes openai': 'the options of one',
  });
}

interface Described {
  runtime: RuntimeName;
  says: string;
  timeout_s: number;
  options: { name: string; is_required: boolean; takes: string; default: string | number | null; says: string }[];
}

function described(runtime: RuntimeName): Described {
  if (runtime === 'spec') return { runtime, says: SPEC_TEXT, timeout_s: TIMEOUT_S, options: [] };
  const { says, timeout_s, options } = RUNTIMES[runtime];
  return {
    runtime,
    says,
    timeout_s,
    options: Object.entries<OptionRule>(options).map(([name, rule]) => ({
      name,
      is_required: rule.is_required === true,
      takes: taken(rule),
      default: 'default' in rule ? rule.default : null,
      says: rule.says,
    })),
  };
}

function taken(rule: OptionRule): string {
  switch (rule.type) {
    case 'text':
      return 'text';
    case 'integer':
      return `${rule.min} to ${rule.max}`;
    case 'boolean':
      return 'true or false';
    case 'choice':
      return rule.choices.join(', ');
    case 'json':
      return 'JSON';
  }
}

function printRuntimes(runtimes: readonly Described[]): void {
  printTable(runtimes, [
    { title: 'RUNTIME', text: ({ runtime }) => runtime },
    { title: 'WHAT LISTENS', text: ({ says }) => says, gives_way: true },
    { title: 'TIMEOUT', text: ({ timeout_s }) => `${timeout_s} s` },
  ]);
  note(`${typed('runtimes NAME')} has the options of one; docs/runtimes.md says how each was tested.`);
}

function printRuntime({ runtime, says, timeout_s, options }: Described): void {
  print(`${runtime}: ${says}. An attempt may take ${timeout_s} s by default.`);
  if (options.length === 0) return;
  print('');
  printTable(options, [
    { title: 'OPTION', text: ({ name, is_required }) => (is_required ? `${name} (required)` : name) },
    { title: 'TAKES', text: ({ takes }) => takes },
    { title: 'DEFAULT', text: (option) => (option.default === null ? '' : String(option.default)) },
    { title: '', text: (option) => option.says, gives_way: true },
  ]);
}
