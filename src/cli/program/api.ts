import { all, ConvokeClient, ConvokeError, type PageStart, refusedPort, type SearchPage } from '@convoke/sdk';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { type ProblemCode, PROBLEMS } from '../../domain/problem.ts';
import { CommandFailure, EXIT } from './exit.ts';
import { note, plain } from './terminal.ts';
import { typed } from './command_name.ts';
import { listInWords } from './format.ts';

export const DEFAULT_URL = 'http://127.0.0.1:8080';

/** The options of every command that calls the API. */
export interface ApiOptions {
  url: string;
  apiKey?: string;
  json?: true;
}

/** The options of every command that lists. */
export interface ListOptions extends ApiOptions {
  limit: number;
  all?: true;
}

/**
 * `--api-key`. The variable CONVOKE_API_KEY is safer, because other users can see the command line in the list of
 * processes.
 */
export function apiKeyOption(): Option {
  return new Option('--api-key <token>', 'the API key to use; not needed while the service has none').env(
    'CONVOKE_API_KEY',
  );
}

/** Adds `--url`, `--api-key` and `--json`. */
export function withApi(command: Command): Command {
  return command
    .addOption(new Option('--url <url>', 'where Convoke listens').env('CONVOKE_URL').default(DEFAULT_URL))
    .addOption(apiKeyOption())
    .option('--json', 'print JSON, for programs');
}

/** Adds the options of `withApi`, and `--limit` and `--all`. */
export function withList(command: Command): Command {
  return withApi(command)
    .option('--limit <n>', 'how many to print', wholeNumber(1, 500), 50)
    .option('--all', 'print all of them');
}

/** Why a service on this port cannot be used in the usual way. */
export function describeRefusedPort(port: number): string {
  return `port ${port} belongs to another protocol, so browsers and most HTTP clients refuse it`;
}

/** @throws CommandFailure when the address is not a URL, or has a port that HTTP clients refuse */
export function clientFor({ url, apiKey }: Pick<ApiOptions, 'url' | 'apiKey'>): ConvokeClient {
  const port = refusedPort(url);
  if (port !== null) {
    const why = `${new URL(url).origin} cannot be asked: ${describeRefusedPort(port)}`;
    throw new CommandFailure(EXIT.usage, `${why}; let Convoke listen on another port`);
  }
  try {
    return new ConvokeClient({ base_url: url, api_key: apiKey });
  } catch (error) {
    const why = (error as Error).message
      .replace('base_url', '--url (or CONVOKE_URL)')
      .replace(/^api_key/, '--api-key (or CONVOKE_API_KEY)');
    throw new CommandFailure(EXIT.usage, why);
  }
}

/** One page, or all pages with `--all`. Prints a note to stderr when there is more. */
export async function listed<T>(
  options: ListOptions,
  list: (query: PageStart & { limit: number }) => Promise<SearchPage<T>>,
): Promise<T[]> {
  if (options.all) {
    const items: T[] = [];
    for await (const item of all((start) => list({ limit: 500, ...start }))) items.push(item);
    return items;
  }
  const { data, next_cursor, searched_to } = await list({ limit: options.limit });
  if (searched_to !== undefined) note(`Searched as far as ${searched_to}: --all searches further.`);
  else if (next_cursor !== null) note(`These are the first ${data.length} of more: --all prints all.`);
  return data;
}

/** Says why a list may have less than there is: the key sees only a part. Says nothing of a key that sees all. */
export async function noteUnseen(client: ConvokeClient): Promise<void> {
  const session = await client.session().catch(() => null);
  const { scopes = [], meeting_ids = null } = session ?? {};
  if (session?.state !== 'signed_in' || scopes.includes('admin')) return;
  if (!scopes.includes('read')) note('This key has no scope read: it sees only what belongs to its own instances.');
  else if (meeting_ids !== null) note(`This key sees only what is in ${listInWords(meeting_ids)}.`);
}

function describeKeyMissing(): string {
  return `the service wants an API key: set CONVOKE_API_KEY to one; \`${typed('keys create --help')}\` shows how to make one`;
}

/** Whether no response of the service came, so that the request may have had its effect. */
function isLost({ code }: ConvokeError): boolean {
  return code === 'unreachable' || code === 'timeout' || code === 'unexpected_response';
}

/**
 * Makes a request whose response has a secret.
 *
 * @param advice what to do if the request had its effect, and the response is lost
 */
export async function withSecret<T>(response: Promise<T>, advice: string): Promise<T> {
  try {
    return await response;
  } catch (error) {
    if (!(error instanceof ConvokeError) || !isLost(error)) throw error;
    const { exit_code, message } = failureOf(error);
    throw new CommandFailure(exit_code, `${message}; ${advice}`);
  }
}

/** The exit code and the one-line message for a failed call. */
export function failureOf(error: ConvokeError): CommandFailure {
  const { code, status } = error;
  // The text is from the network: a terminal must not obey it.
  const detail = plain(error.detail);
  if (isLost(error)) {
    return new CommandFailure(EXIT.unreachable, detail.replaceAll('base_url', '--url'));
  }
  if (code === 'api_key_missing') return new CommandFailure(EXIT.refused, `${describeKeyMissing()} (${code})`);
  // The service's detail already names every invalid field.
  const exit_code = status !== null && status >= 500 ? EXIT.failed : EXIT.refused;
  return new CommandFailure(exit_code, `${withTitle(code, detail)} (${plain(code)})`);
}

/** Adds the title to a detail that is only the advice of the code: advice does not say what went wrong. */
function withTitle(code: string, detail: string): string {
  const problem = code in PROBLEMS ? PROBLEMS[code as ProblemCode] : null;
  return problem?.advice === detail ? `${problem.title}. ${detail}` : detail;
}

/** Parses the value of an option as a whole number within bounds. */
export function wholeNumber(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,16}$/.test(text) ? Number(text) : -1;
    if (value < min || value > max) throw new InvalidArgumentError(`It must be a whole number from ${min} to ${max}.`);
    return value;
  };
}

/** Collects the values of an option that can be given several times. */
export function collect(value: string, before: string[] | undefined): string[] {
  return [...(before ?? []), value];
}
