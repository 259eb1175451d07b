import type { FastifySchemaCompiler } from 'fastify';
import Type, { type Static, type TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/compile';
import Format from 'typebox/format';
import { Settings } from 'typebox/system';
import { nearestName } from '../../domain/nearest.ts';
import { type FieldError, Problem } from '../../domain/problem.ts';
import { isTime } from '../../domain/time.ts';

/** The most errors that one response lists. */
const ERRORS_MAX = 20;
Settings.Set({ maxErrors: ERRORS_MAX });

/** The format of every time in a body or in a query. */
Format.Set('date-time', isTime);

/** An unknown name is cut to this many characters before it is shown and compared with the known names. */
const NAME_CHARS_SHOWN = 80;

/**
 * Makes a function that checks a value against a schema and returns the value, for parts of a body that are judged one
 * by one.
 *
 * @throws Problem `invalid_fields`, from the returned function
 */
export function validator<Schema extends TSchema>(schema: Schema): (value: unknown) => Static<Schema> {
  const validate = validatorCompiler({ schema, httpPart: 'body', method: '', url: '' }) as Validate;
  return (value) => {
    const { error } = validate(value);
    if (error !== undefined) throw error;
    return value as Static<Schema>;
  };
}

type Validate = (value: unknown) => { error?: Problem };

/**
 * Validates with the route's own schemas. Validation converts only the text of query parameters, and removes nothing.
 */
export const validatorCompiler: FastifySchemaCompiler<TSchema> = ({ schema, httpPart }) => {
  // Compiled when it is first used: compiling all validators would take 150 ms of the start.
  let validator: Validator | undefined;
  const limited = limitedFields(schema);
  return (data: unknown) => {
    validator ??= Compile(withoutItems(schema));
    const value = httpPart === 'querystring' ? fromText(schema, data as Record<string, unknown>) : data;
    // Checks the length first: to validate 200,000 items took 450 ms, and to list all of them as wrong took as long
    // again.
    const too_long = tooLong(limited, value);
    if (too_long.length > 0) return { error: invalid(too_long) };
    if (validator.Check(value) && missingField(schema, value) === null) return { value };
    return { error: problemOf(schema, value, validator, httpPart === 'querystring') };
  };
};

/** Removes from a schema the items of lists that the route itself judges one by one. */
function withoutItems(schema: TSchema): TSchema {
  const { properties } = schema as SchemaNode;
  const lists = Object.entries(properties ?? {}).filter(([, node]) => node['x-judged-apart'] === true);
  if (lists.length === 0) return schema;
  const open = lists.map(([name, node]) => [name, { ...node, items: Type.Unknown() }]);
  return { ...schema, properties: { ...properties, ...Object.fromEntries(open) } };
}

interface SchemaNode {
  type?: string;
  'x-expected'?: string;
  enum?: readonly unknown[];
  properties?: Record<string, SchemaNode>;
  anyOf?: SchemaNode[];
  items?: SchemaNode;
  maxItems?: number;
  maxProperties?: number;
  'x-bytes-max'?: number;
  'x-judged-apart'?: boolean;
  'x-required-unless'?: { field: string; other: string; value: string };
  additionalProperties?: SchemaNode | boolean;
  propertyNames?: SchemaNode;
}

interface ValidationError {
  keyword: string;
  schemaPath: string;
  instancePath: string;
  params: object;
  message: string;
}

function problemOf(schema: TSchema, value: unknown, validator: Validator, is_query: boolean): Problem {
  const found = new Map<string, FieldError>();
  const add = (field: FieldError): void => {
    if (found.size < ERRORS_MAX && !found.has(field.path)) found.set(field.path, field);
  };
  for (const field of unknownFields(schema, value)) add(field);
  if (found.size < ERRORS_MAX) {
    for (const error of validator.Errors(value)) fieldErrorsOf(schema, error, is_query ? value : null).forEach(add);
    const missing = missingField(schema, value);
    if (missing !== null) add(missing);
  }
  return invalid([...found.values()]);
}

function invalid(fields: FieldError[]): Problem {
  return new Problem('invalid_fields', fields.map(detailOf).join('; '), { errors: fields });
}

/** Finds unknown fields without the validator, and stops after ERRORS_MAX of them: there may be 200,000. */
function unknownFields({ properties, additionalProperties }: SchemaNode, value: unknown): FieldError[] {
  if (properties === undefined || additionalProperties !== false || !isObject(value)) return [];
  const known = Object.keys(properties);
  const unknown: FieldError[] = [];
  for (const name in value) {
    if (Object.hasOwn(properties, name)) continue;
    unknown.push({ path: shown(name), message: unknownField(name, known) });
    if (unknown.length === ERRORS_MAX) break;
  }
  return unknown;
}

/** Finds a missing field that is required unless another field has a certain value. */
function missingField({ 'x-required-unless': rule }: SchemaNode, value: unknown): FieldError | null {
  if (rule === undefined || !isObject(value) || Object.hasOwn(value, rule.field)) return null;
  return value[rule.other] === rule.value ? null : { path: rule.field, message: 'is required' };
}

/** The fields whose length has a limit, also those within other fields, with their schemas. */
function limitedFields(schema: SchemaNode, within: readonly string[] = []): [path: string[], node: SchemaNode][] {
  return Object.entries(fieldsIn(schema) ?? {}).flatMap(([name, node]) => {
    const path = [...within, name];
    const is_limited = node.maxItems !== undefined || node.maxProperties !== undefined;
    return is_limited ? [[path, node]] : limitedFields(node, path);
  });
}

/** Finds lists and objects that are too long. */
function tooLong(limited: readonly [path: string[], node: SchemaNode][], value: unknown): FieldError[] {
  const fields: FieldError[] = [];
  for (const [path, node] of limited) {
    const field = path.reduce(valueIn, value);
    if (field === undefined) continue;
    const length = Array.isArray(field) ? field.length : isObject(field) ? Object.keys(field).length : 0;
    const is_short = length <= (node.maxItems ?? node.maxProperties ?? Infinity);
    if (is_short && bytesOf(field) <= (node['x-bytes-max'] ?? Infinity)) continue;
    fields.push({ path: path.join('.'), message: node['x-expected'] ?? 'is too long' });
  }
  return fields;
}

/** The bytes of the texts in a list or an object, with their names. */
function bytesOf(value: unknown): number {
  const texts = Array.isArray(value) ? value : isObject(value) ? Object.entries(value).flat() : [];
  return texts.reduce<number>((sum, text) => sum + (typeof text === 'string' ? Buffer.byteLength(text) : 0), 0);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** @param query the parameters of the URL; null for a body */
function fieldErrorsOf(schema: SchemaNode, error: ValidationError, query: unknown): FieldError[] {
  const path = error.instancePath.split('/').slice(1).map(unescapePointer);
  const params = error.params as { requiredProperties?: string[] };
  const within = (name: string): string => [...path, name].join('.');
  if (params.requiredProperties !== undefined) {
    return params.requiredProperties.map((name) => ({ path: within(name), message: 'is required' }));
  }
  // The validator has two errors for an unknown field: `boolean` for the field, and this one for its object.
  if (error.keyword === 'additionalProperties') return [];
  // Likewise it has two errors for a name that is not valid: one for the name, and `propertyNames` for its object.
  if (error.keyword === 'propertyNames') return [];
  if (error.schemaPath.endsWith('/propertyNames')) {
    const name = path.pop() ?? '';
    const message = nodeAt(schema, path)?.propertyNames?.['x-expected'] ?? error.message;
    return [{ path: within(shown(name)), message }];
  }
  if (error.keyword === 'boolean') {
    const name = path.pop();
    // `unknownFields` has reported the unknown fields of the body itself.
    if (name === undefined || path.length === 0) return [];
    const known = Object.keys(fieldsIn(nodeAt(schema, path)) ?? {});
    return [{ path: within(shown(name)), message: unknownField(name, known) }];
  }
  if (path.length === 0 && error.keyword === 'type') return [{ path: '', message: 'must be a JSON object' }];
  const message = expectation(schema, path) ?? error.message;
  const hint = error.keyword === 'format' && hasLostPlus(path.reduce(valueIn, query)) ? LOST_PLUS : '';
  return [{ path: path.join('.'), message: message + hint }];
}

const LOST_PLUS = '; in a URL a + is a space: write it as %2B, or give the time in UTC with Z';

/** Whether a text is a time whose + became a space. */
function hasLostPlus(text: unknown): boolean {
  return typeof text === 'string' && text.includes(' ') && isTime(text.replace(' ', '+'));
}

function valueIn(value: unknown, step: string): unknown {
  return isObject(value) ? value[step] : undefined;
}

function detailOf({ path, message }: FieldError): string {
  if (message.startsWith('unknown field')) return message;
  return `${path === '' ? 'the body' : path} ${message}`;
}

function unknownField(name: string, known: string[]): string {
  const near = name.length > NAME_CHARS_SHOWN ? null : nearestName(name, known);
  if (near !== null) return `unknown field ${name}; did you mean ${near}?`;
  return `unknown field ${shown(name)}; ${known.length === 0 ? 'none is taken here' : `known are ${known.join(', ')}`}`;
}

/** What the schema expects at a path, in words. If it says nothing there, the words of the nearest place above. */
function expectation(schema: SchemaNode, path: string[]): string | undefined {
  for (let length = path.length; length >= 0; length--) {
    const node = nodeAt(schema, path.slice(0, length));
    if (node?.['x-expected'] !== undefined) return node['x-expected'];
    if (node?.enum !== undefined) return `must be one of ${node.enum.join(', ')}`;
    if (node?.type !== undefined && length === path.length && node.type !== 'object')
      return `must be ${/^[aeiou]/.test(node.type) ? 'an' : 'a'} ${node.type}`;
  }
  return undefined;
}

function nodeAt(schema: SchemaNode, path: string[]): SchemaNode | undefined {
  let node: SchemaNode | undefined = schema;
  for (const step of path) {
    const rest: SchemaNode | boolean | undefined = node?.items ?? node?.additionalProperties;
    node = fieldsIn(node)?.[step] ?? (typeof rest === 'object' ? rest : undefined);
  }
  return node;
}

/** The fields of an object, also of one that a field may have in place of a text. */
function fieldsIn(node: SchemaNode | undefined): Record<string, SchemaNode> | undefined {
  return node?.properties ?? node?.anyOf?.find(({ properties }) => properties !== undefined)?.properties;
}

function shown(name: string): string {
  return name.length > NAME_CHARS_SHOWN ? `${name.slice(0, NAME_CHARS_SHOWN)}…` : name;
}

function unescapePointer(step: string): string {
  return step.replaceAll('~1', '/').replaceAll('~0', '~');
}

/** Turns the text of query parameters into numbers, booleans and lists with one item, if the schema expects these. */
function fromText(schema: SchemaNode, query: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(query).map(([name, text]) => {
      const type = schema.properties?.[name]?.type;
      if (type === 'integer' && typeof text === 'string' && /^\d{1,16}$/.test(text)) return [name, Number(text)];
      if (type === 'boolean' && (text === 'true' || text === 'false')) return [name, text === 'true'];
      if (type === 'array' && typeof text === 'string') return [name, [text]];
      return [name, text];
    }),
  );
}
