import { nearestName } from '../domain/nearest.ts';
import { isLoopbackHost } from '../domain/host.ts';
import {
  SETTINGS,
  type SettingName,
  type SettingValues,
  settingNames,
  isSecret,
  variableOf,
  fileVariableOf,
  flagOf,
} from './settings.ts';
import { readSecretFile } from './secret_file.ts';
import type { Config } from './config.ts';

/** Shown instead of the value of a secret. */
const HIDDEN = '(hidden)';

/** Variables with the prefix CONVOKE_ that are no settings: the commands that call the API read them. */
const CLIENT_VARIABLES = ['CONVOKE_URL', 'CONVOKE_API_KEY'];

/** Where the value of a setting comes from, and the value as text. */
export interface Source {
  from: 'default' | 'environment' | 'file' | 'flag';
  value: string;
}

type Flags = { [Name in SettingName]?: string };
type Environment = Record<string, string | undefined>;

export interface ReadConfig {
  config: Config;
  sources: Record<SettingName, Source>;
}

/** Everything that is wrong with the settings, one sentence each. */
export class ConfigError extends Error {
  readonly faults: readonly string[];

  constructor(faults: readonly string[]) {
    super(faults.join('\n'));
    this.name = 'ConfigError';
    this.faults = faults;
  }
}

/**
 * Determines the value of every setting: the flag if there is one, otherwise the environment variable, otherwise the
 * default. An environment variable that is empty counts as not set. Reads nothing but its arguments, and the files of
 * secrets that they name.
 *
 * @param flags the flags by the names of their settings; a flag that was not given is absent
 * @throws ConfigError that lists every fault at once
 */
export function readConfig({ flags = {}, env = {} }: { flags?: Flags; env?: Environment }): ReadConfig {
  const { sources, faults: faults_of_files } = sourcesOf(flags, env);
  const parsed = parsedSettings(sources);
  const faults = [
    ...unknownVariables(env),
    ...faults_of_files,
    ...settingNames().flatMap((name) => (parsed[name] === undefined ? [describeMismatch(name, sources[name])] : [])),
    // A key whose file could not be read is not missing.
    ...(faults_of_files.length === 0 ? faultsOfKeys(parsed) : []),
  ];
  if (faults.length > 0 || !isComplete(parsed)) throw new ConfigError(faults);

  // Behind a proxy the clients are on other machines, even when the service listens on localhost only.
  const is_local = isLoopbackHost(parsed.host) && parsed.trust_proxy.length === 0;
  const egress = sources.egress.from === 'default' && !is_local ? 'public' : parsed.egress;
  sources.egress.value = egress;
  const changed_settings = settingNames().filter(
    (name) => sources[name].from !== 'default' && sources[name].value !== SETTINGS[name].default,
  );
  for (const name of settingNames()) {
    if (isSecret(name) && sources[name].from !== 'default') sources[name].value = HIDDEN;
  }
  return { config: { ...configOf({ ...parsed, egress }), changed_settings }, sources };
}

function sourcesOf(flags: Flags, env: Environment): { sources: Record<SettingName, Source>; faults: string[] } {
  const faults: string[] = [];
  const found = settingNames().map((name) => {
    const source = sourceOf(name, flags, env);
    if (!('fault' in source)) return [name, source];
    faults.push(source.fault);
    return [name, { from: 'default', value: SETTINGS[name].default }];
  });
  return { sources: Object.fromEntries(found) as Record<SettingName, Source>, faults };
}

/** Every setting; undefined if its text is not valid for its type. */
type ParsedSettings = { [Name in SettingName]: SettingValues[Name] | undefined };

function parsedSettings(sources: Record<SettingName, Source>): ParsedSettings {
  const parsed = settingNames().map((name) => [name, SETTINGS[name].parse(sources[name].value)]);
  return Object.fromEntries(parsed) as ParsedSettings;
}

function isComplete(parsed: ParsedSettings): parsed is SettingValues {
  return settingNames().every((name) => parsed[name] !== undefined);
}

function configOf({
  egress,
  egress_allow,
  egress_allow_http,
  ...values
}: SettingValues): Omit<Config, 'changed_settings'> {
  const { retry_schedule, expire_after, retention_deliveries, retention_messages, retention_audit, ...same } = values;
  return {
    ...same,
    egress_policy: { mode: egress, allow: egress_allow, allow_http: egress_allow_http },
    retry_schedule_ms: retry_schedule,
    expire_after_ms: expire_after,
    retention_deliveries_ms: retention_deliveries,
    retention_messages_ms: retention_messages,
    retention_audit_ms: retention_audit,
  };
}

function sourceOf(name: SettingName, flags: Flags, env: Environment): Source | { fault: string } {
  const flag = flags[name];
  if (flag !== undefined) return { from: 'flag', value: flag };
  const variable = env[variableOf(name)] ?? '';
  const path = isSecret(name) ? (env[fileVariableOf(name)] ?? '') : '';
  if (variable !== '' && path !== '')
    return { fault: `${variableOf(name)} and ${fileVariableOf(name)} are both set; leave one of them out` };
  if (variable !== '') return { from: 'environment', value: variable };
  if (path === '') return { from: 'default', value: SETTINGS[name].default };
  const secret = readSecretFile(path);
  return 'fault' in secret
    ? { fault: `${fileVariableOf(name)}: ${secret.fault}` }
    : { from: 'file', value: secret.value };
}

function unknownVariables(env: Environment): string[] {
  const files = settingNames().filter(isSecret).map(fileVariableOf);
  const known = [...settingNames().map(variableOf), ...files, ...CLIENT_VARIABLES];
  const unknown = Object.keys(env).filter((name) => name.startsWith('CONVOKE_') && !known.includes(name));
  if (unknown.includes('CONVOKE_SERVICE_HOST')) {
    return [
      'Kubernetes has set CONVOKE_SERVICE_HOST and more for a Service named convoke, which would be taken for settings; ' +
        'put enableServiceLinks: false into the pod, or name the Service otherwise',
    ];
  }
  return unknown.map((name) => {
    const nearest = nearestName(withoutPrefix(name), known.map(withoutPrefix));
    const hint = nearest === null ? 'docs/settings.md lists them all' : `did you mean CONVOKE_${nearest}?`;
    return `${name} is not a setting; ${hint}`;
  });
}

function withoutPrefix(variable: string): string {
  return variable.slice('CONVOKE_'.length);
}

function describeMismatch(name: SettingName, source: Source): string {
  return `${describeGiven(name, source)} must be ${SETTINGS[name].expects.replaceAll('`', '')}`;
}

function faultsOfKeys({ encryption_key, encryption_key_previous }: ParsedSettings): string[] {
  if (encryption_key_previous === undefined || encryption_key_previous === null) return [];
  const name = variableOf('encryption_key');
  if (encryption_key === null) return [`${variableOf('encryption_key_previous')} needs the key after it, as ${name}`];
  if (encryption_key?.equals(encryption_key_previous)) {
    return [`${variableOf('encryption_key_previous')} is the same key as ${name}; leave it out`];
  }
  return [];
}

function describeGiven(name: SettingName, { from, value }: Source): string {
  if (from === 'file') return `the text in the file of ${fileVariableOf(name)}`;
  if (isSecret(name)) return variableOf(name);
  const shown = JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value);
  return from === 'flag' ? `${flagOf(name)} ${shown}` : `${variableOf(name)}=${shown}`;
}
