import { all, type ApiKey, type OpenSession, type Scope } from '@convoke/sdk';
import { Command, InvalidArgumentError, Option } from 'commander';
import { SCOPES } from '../../../domain/api_key.ts';
import { wallNow } from '../../../wall_clock.ts';
import { type ApiOptions, clientFor, collect, wholeNumber, withApi, withSecret } from '../api.ts';
import { withExamples } from '../examples.ts';
import { reencryptCommand } from './reencrypt.ts';
import { onServiceOrFile, type ServiceOrFileOptions, withServiceOrFile } from '../service_or_file.ts';
import { note, print, printFields, printJson, printTable } from '../terminal.ts';
import { ago, keyStateInWords, listInWords } from '../format.ts';
import { typed } from '../command_name.ts';

export function keysCommand(): Command {
  const command = new Command('keys')
    .description(
      'the API keys and who is signed in with them: create, list, revoke, rotate; over the API, or on the data file while no service runs',
    )
    .addCommand(listCommand(), { isDefault: true })
    .addCommand(createCommand())
    .addCommand(revokeCommand())
    .addCommand(rotateCommand())
    .addCommand(portalLinkCommand())
    .addCommand(sessionsCommand())
    .addCommand(endSessionCommand())
    .addCommand(reencryptCommand());
  return withExamples(command, {
    'convoke keys create --scope admin --name operator': 'the first key; from then on every request needs one',
    'convoke keys': 'all of them, with their last use',
  });
}

interface CreateOptions extends ServiceOrFileOptions {
  scope: Scope[];
  name?: string;
  meeting?: string[];
  instance?: string;
  expiresAt?: string;
}

function createCommand(): Command {
  const command = new Command('create')
    .description('make a key; its token is shown only now')
    .addOption(
      new Option('--scope <scope>', `what it may be used for: ${SCOPES.join(', ')}; repeat it for more`)
        .argParser(collectScope)
        .makeOptionMandatory(),
    )
    .option('--name <name>', 'a name for people')
    .option(
      '--meeting <meeting_id>',
      'permit sending, reading and joining only in this meeting; repeat it for more',
      collect,
    )
    .option('--instance <instance_id>', 'limit the scope instance to this instance')
    .option('--expires-at <time>', 'when the key ends, such as 2027-03-01T09:30:00Z')
    .action(async ({ scope, name, meeting, instance, expiresAt, ...options }: CreateOptions) => {
      const limits = { meeting_ids: meeting, instance_id: instance, expires_at: expiresAt };
      const { token, ...key } = await onServiceOrFile(options, true, (client) =>
        withSecret(
          client.createKey({ scopes: scope, name, ...limits }),
          `if the key is made all the same, nobody saw its token: \`${typed('keys')}\` lists it, and \`${typed('keys revoke KEY')}\` ends it`,
        ),
      );
      if (options.json) {
        printJson({ ...key, token });
        return;
      }
      print(`the key ${key.key_id} is made, for ${key.scopes.join(' and ')}`);
      print(`its token, shown only now: ${token}`);
      note('Give it as CONVOKE_API_KEY to the commands, as api_key to the SDK, or as authorization: Bearer …');
    });
  return withExamples(withServiceOrFile(command), {
    'convoke keys create --scope admin --data /var/lib/convoke': 'the first key, before the first start',
    'convoke keys create --scope instance --scope send --instance laptop-anna':
      'for one machine that also sends messages',
    'convoke keys create --scope read --meeting standup-42 --expires-at 2027-03-01T09:30:00Z': 'to read one meeting',
  });
}

function collectScope(value: string, before: Scope[] | undefined): Scope[] {
  const scope = SCOPES.find((known) => known === value);
  if (scope === undefined) throw new InvalidArgumentError(`Allowed choices are ${SCOPES.join(', ')}.`);
  return [...(before ?? []), scope];
}

function listCommand(): Command {
  const command = new Command('list')
    .description('list the keys, revoked ones included')
    .action(async (options: ServiceOrFileOptions) => {
      const keys = await onServiceOrFile(options, false, async (client) => {
        const found: ApiKey[] = [];
        for await (const key of all((page) => client.listKeys({ limit: 500, ...page }))) found.push(key);
        return found;
      });
      if (options.json) printJson(keys);
      else printKeys(keys);
    });
  return withExamples(withServiceOrFile(command), { 'convoke keys list --json': 'for a program' });
}

function printKeys(keys: readonly ApiKey[]): void {
  if (keys.length === 0) {
    note(
      `There is no key: everyone who can reach the service may do everything. \`${typed('keys create --help')}\` shows how to make one.`,
    );
    return;
  }
  const now_ms = wallNow();
  printTable(keys, [
    { title: 'KEY', text: (key) => key.key_id },
    { title: 'NAME', text: (key) => key.name ?? '', gives_way: true },
    { title: 'SCOPES', text: (key) => key.scopes.join(', ') },
    { title: 'LIMITED TO', text: limitInWords, gives_way: true },
    { title: 'LAST USED', text: (key) => ago(key.last_used_at, now_ms) },
    {
      title: 'STATE',
      text: (key) => keyStateInWords(key, now_ms),
      style: (key) => (key.revoked_at === null ? null : 'dim'),
    },
  ]);
}

function limitInWords({ meeting_ids, instance_id }: ApiKey): string {
  const meetings = meeting_ids === null ? [] : [`meetings ${listInWords(meeting_ids)}`];
  const instance = instance_id === null ? [] : [`instance ${instance_id}`];
  return [...meetings, ...instance].join('; ');
}

function revokeCommand(): Command {
  const command = new Command('revoke')
    .description('refuse a key from now on; the instances that it owns stay')
    .argument('<key_id>')
    .action(async (key_id: string, options: ServiceOrFileOptions) => {
      await onServiceOrFile(options, false, (client) => client.revokeKey(key_id));
      if (options.json) printJson({ key_id, revoked: true });
      else print(`the key ${key_id} is revoked`);
    });
  return withExamples(withServiceOrFile(command), { 'convoke keys revoke 4f7k2m9q0a1b': 'it is refused at once' });
}

interface RotateOptions extends ServiceOrFileOptions {
  overlap?: number;
}

function rotateCommand(): Command {
  const command = new Command('rotate')
    .description('make a new token for a key; the old one still works for a day')
    .argument('<key_id>')
    .option('--overlap <seconds>', 'how long the old token still works', wholeNumber(0, 2_592_000))
    .action(async (key_id: string, { overlap, ...options }: RotateOptions) => {
      const key = await onServiceOrFile(options, false, (client) =>
        withSecret(
          client.rotateKey(key_id, { overlap_seconds: overlap }),
          overlap === 0
            ? `if the key has a new token all the same, nobody saw it, and the old ones have ended: rotate again with another admin key, or stop the service and run \`${typed(`keys rotate ${key_id} --data DIRECTORY`)}\` with its data directory`
            : 'if the key has a new token all the same, nobody saw it: rotate again, because each earlier token works until its own end',
        ),
      );
      if (options.json) {
        printJson(key);
        return;
      }
      printFields({
        key: key.key_id,
        'new token, shown only now': key.token,
        'the old one works until': key.previous_token_expires_at ?? 'now',
        ...(key.earlier_tokens_expire_at !== undefined && {
          'earlier ones work until': key.earlier_tokens_expire_at.join(', '),
        }),
      });
    });
  return withExamples(withServiceOrFile(command), {
    'convoke keys rotate 4f7k2m9q0a1b': 'both tokens work for a day, so that nothing stops',
    'convoke keys rotate 4f7k2m9q0a1b --overlap 0': 'the old token leaked: refuse it at once',
  });
}

interface PortalLinkOptions extends ApiOptions {
  instance?: string;
  expiresIn?: number;
}

function portalLinkCommand(): Command {
  const command = new Command('portal-link')
    .description('make a link that shows the instances of a key, and nothing else, for an hour')
    .argument('<key_id>')
    .option('--instance <instance_id>', 'show only this instance')
    .option('--expires-in <seconds>', 'how long it can be used', wholeNumber(1, 3_600))
    .action(async (key_id: string, { instance, expiresIn, ...options }: PortalLinkOptions) => {
      const input = { instance_id: instance, expires_in_s: expiresIn };
      const made = await clientFor(options).createPortalLink(key_id, input);
      if (options.json) printJson(made);
      else printFields({ link: made.link, 'valid until': made.expires_at });
    });
  return withExamples(withApi(command), {
    'convoke keys portal-link 4f7k2m9q0a1b': 'open it in a browser, or in a frame of your own product',
  });
}

function sessionsCommand(): Command {
  const command = new Command('sessions')
    .description('list who is signed in on a page, the latest first')
    .action(async (options: ServiceOrFileOptions) => {
      const sessions = await onServiceOrFile(options, false, async (client) => {
        const found: OpenSession[] = [];
        for await (const session of all((page) => client.listSessions({ limit: 500, ...page }))) found.push(session);
        return found;
      });
      if (options.json) return printJson(sessions);
      if (sessions.length === 0) return note('Nobody is signed in on a page.');
      const now_ms = wallNow();
      printTable(sessions, [
        { title: 'SESSION', text: ({ session_id }) => session_id },
        { title: 'SIGNED IN', text: ({ created_at }) => ago(created_at, now_ms) },
        { title: 'WITH', text: ({ key_id }) => (key_id === null ? 'a sign-in link' : `the key ${key_id}`) },
        { title: 'ENDS', text: ({ expires_at }) => ago(expires_at, now_ms) },
      ]);
    });
  return withExamples(withServiceOrFile(command), { 'convoke keys sessions': 'who is signed in' });
}

function endSessionCommand(): Command {
  const command = new Command('end-session')
    .description('end a session, on every node; the key with which it began stays valid')
    .argument('<session_id>')
    .action(async (session_id: string, options: ServiceOrFileOptions) => {
      await onServiceOrFile(options, false, (client) => client.endSession(session_id));
      if (options.json) printJson({ session_id, ended: true });
      else print(`the session ${session_id} is ended`);
    });
  return withExamples(withServiceOrFile(command), {
    'convoke keys end-session 3f9c1b7a52d04e8f6a10': 'its page asks for a key again',
  });
}
