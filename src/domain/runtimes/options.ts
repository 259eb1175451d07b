import { invalidField } from '../problem.ts';

/** The most bytes of all options of an instance, as JSON. */
export const OPTIONS_BYTES_MAX = 16_384;

/** The type of an option. */
export type OptionRule = {
  /** One sentence, for `convoke runtimes` and the documents. */
  says: string;
  is_required?: true;
} & (
  | { type: 'text'; chars_max: number; default?: string }
  | { type: 'integer'; min: number; max: number; default?: number }
  | { type: 'boolean' }
  | { type: 'choice'; choices: readonly string[]; default: string }
  /** Any JSON. `check` returns the fault as a text, or null. */
  | { type: 'json'; check: (value: unknown) => string | null }
);

export type OptionTable = Readonly<Record<string, OptionRule>>;

/** The options of an instance, checked. */
export type Options = Readonly<Record<string, unknown>>;

/**
 * Checks the options of a runtime.
 *
 * @param path the name of the field in the request
 * @throws Problem `invalid_fields`, which names the option
 */
export function checkedOptions(table: OptionTable, given: Record<string, unknown>, path: string): Options {
  for (const [name, value] of Object.entries(given)) {
    const rule = Object.hasOwn(table, name) ? table[name] : undefined;
    if (rule === undefined) {
      const known = Object.keys(table).join(', ');
      throw invalidField(`${path}.${name}`, `is no option of this runtime; it has ${known === '' ? 'none' : known}`);
    }
    const why = wrongWith(rule, value);
    if (why !== null) throw invalidField(`${path}.${name}`, why);
  }
  for (const [name, { is_required }] of Object.entries(table)) {
    if (is_required && !Object.hasOwn(given, name))
      throw invalidField(`${path}.${name}`, 'is required by this runtime');
  }
  if (Buffer.byteLength(JSON.stringify(given)) > OPTIONS_BYTES_MAX) {
    throw invalidField(path, `must be at most ${OPTIONS_BYTES_MAX} bytes as JSON`);
  }
  return given;
}

function wrongWith(rule: OptionRule, value: unknown): string | null {
  switch (rule.type) {
    case 'text': {
      const fits = typeof value === 'string' && value !== '' && value.length <= rule.chars_max && value.isWellFormed();
      return fits ? null : `must be a string of 1 to ${rule.chars_max} characters`;
    }
    case 'integer':
      return Number.isInteger(value) && (value as number) >= rule.min && (value as number) <= rule.max
        ? null
        : `must be a whole number from ${rule.min} to ${rule.max}`;
    case 'boolean':
      return typeof value === 'boolean' ? null : 'must be true or false';
    case 'choice':
      return rule.choices.includes(value as string) ? null : `must be one of ${rule.choices.join(', ')}`;
    case 'json':
      return rule.check(value);
  }
}

export function textOption(options: Options, name: string, otherwise: string): string {
  return (options[name] as string | undefined) ?? otherwise;
}

export function numberOption(options: Options, name: string, otherwise: number): number {
  return (options[name] as number | undefined) ?? otherwise;
}
