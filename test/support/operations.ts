/** The operations of the OpenAPI document, and random inputs that are made from their schemas. */
import fc from 'fast-check';
import type { TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/compile';
import { RESERVED_HEADERS } from '../../src/delivery/transport/push.ts';

/** The keywords that the schemas of Convoke use. */
export interface Schema {
  type?: 'string' | 'integer' | 'number' | 'boolean' | 'object' | 'array' | 'null';
  pattern?: string;
  format?: string;
  enum?: unknown[];
  anyOf?: Schema[];
  minimum?: number;
  maximum?: number;
  minItems?: number;
  maxItems?: number;
  'x-judged-apart'?: boolean;
  maxLength?: number;
  minLength?: number;
  minProperties?: number;
  items?: Schema;
  properties?: Record<string, Schema>;
  patternProperties?: Record<string, Schema>;
  required?: string[];
  'x-required-unless'?: { field: string };
}

interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  schema: Schema;
}

export interface Operation {
  method: string;
  path: string;
  parameters: Parameter[];
  body: Schema | null;
  /** The validators of responses, by status; null for a response without a body. */
  answers: Map<number, Validator | null>;
  /** The names of headers, by status. */
  headers: Map<number, string[]>;
}

export type Place = Parameter['in'] | 'body';

/** The fields of a request, by their place. */
export type Input = Record<Place, Record<string, unknown>>;

interface Document {
  paths: Record<
    string,
    Record<
      string,
      {
        parameters?: Parameter[];
        requestBody?: { content: Record<string, { schema: Schema }> };
        responses: Record<string, { content?: Record<string, { schema: Schema }>; headers?: object }>;
      }
    >
  >;
  components: { schemas: Record<string, Schema> };
}

/** The document with each $ref replaced by its schema. */
export function resolved<Given extends Pick<Document, 'components'>>(document: Given): Given {
  const { schemas } = document.components;
  const within = (node: unknown): unknown => {
    if (Array.isArray(node)) return node.map(within);
    if (typeof node !== 'object' || node === null) return node;
    if ('$ref' in node) return within(schemas[String(node.$ref).split('/').at(-1) as string]);
    return Object.fromEntries(Object.entries(node).map(([name, value]) => [name, within(value)]));
  };
  return within(document) as Given;
}

/** Every operation whose responses are only JSON. */
export function operationsOf(document: Document): Operation[] {
  return Object.entries(resolved(document).paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { responses }]) => {
        const types = Object.keys(responses['200']?.content ?? {});
        return types.every((type) => type === 'application/json');
      })
      .map(([method, { parameters = [], requestBody, responses }]) => ({
        method: method.toUpperCase(),
        path,
        parameters,
        body: requestBody?.content['application/json']?.schema ?? null,
        answers: new Map(
          Object.entries(responses).map(([status, { content }]) => {
            const [of_type] = Object.values(content ?? {});
            return [Number(status), of_type === undefined ? null : Compile(of_type.schema as TSchema)];
          }),
        ),
        headers: new Map(
          Object.entries(responses).map(([status, { headers = {} }]) => [Number(status), Object.keys(headers)]),
        ),
      })),
  );
}

/** The schema of a field. */
export function schemaOf({ parameters, body }: Operation, place: Place, name: string): Schema | undefined {
  if (place === 'body') return body?.properties?.[name];
  return parameters.find((parameter) => parameter.in === place && parameter.name === name)?.schema;
}

/** Only a few ids, so that some of the requested objects exist. */
const KNOWN_IDS = ['one', 'two', 'three'];

/** How to make fields whose rules a schema cannot express. */
const BY_NAME: Record<string, fc.Arbitrary<unknown>> = {
  webhook_url: fc.webPath().map((path) => `http://127.0.0.1:9${path.startsWith('/') ? path : `/${path}`}`),
  webhook_secret: fc
    .uint8Array({ minLength: 24, maxLength: 64 })
    .map((bytes) => `whsec_${Buffer.from(bytes).toString('base64')}`),
  webhook_headers: fc
    .dictionary(
      fc.stringMatching(/^[!#$%&'*+.^_`|~0-9a-z-]{1,20}$/).filter((name) => !RESERVED_HEADERS.has(name)),
      fc.stringMatching(/^[\x20-\x7e]{0,50}$/),
      { maxKeys: 5 },
    )
    .map((headers) => ({ ...headers })),
  // The options depend on the runtime, so this makes only one runtime.
  runtime: fc.constant('spec'),
  runtime_options: fc.constant({}),
  // Only a subscription has a lease.
  lease_s: fc.constant(undefined),
  // Only null: the new owner of an instance must exist, and a random id is not that of a key.
  owner_key_id: fc.constant(null),
  // All scopes to which limits apply. `admin` is left out, because an admin key has no limits.
  scopes: fc.constant(['send', 'read', 'instance']),
  expires_at: fc
    .date({ noInvalidDate: true, min: new Date('2090-01-01'), max: new Date('2100-01-01') })
    .map((date) => date.toISOString()),
  // Only webhooks, because a pull would wait for a push that never arrives.
  transport: fc.constant('webhook'),
  token: fc.stringMatching(/^[A-Za-z0-9_-]{43}$/),
  // These are headers, so they have only ASCII.
  traceparent: fc.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/),
  tracestate: fc.stringMatching(/^[\x20-\x7e]{0,50}$/),
  // A message is any object.
  message: fc.dictionary(fc.string({ unit: 'grapheme' }), fc.jsonValue()),
};

/** Fields that are left out, because their value must be from an earlier response. */
const NEVER_MADE = new Set(['cursor', 'in_reply_to']);

/** Makes requests that the schemas allow. */
export function validInput(operation: Operation): fc.Arbitrary<Input> {
  const placed = (place: Place): fc.Arbitrary<Record<string, unknown>> => {
    const parameters = operation.parameters.filter((each) => each.in === place && !NEVER_MADE.has(each.name));
    const fields = parameters.map(({ name, schema }) => [name, fieldOf(name, schema)] as const);
    const required = parameters.filter((each) => each.required === true).map(({ name }) => name);
    return fc.record(Object.fromEntries(fields), { requiredKeys: required, noNullPrototype: true });
  };
  const { body } = operation;
  return fc.record(
    {
      path: placed('path'),
      query: placed('query'),
      header: placed('header'),
      body: body === null ? fc.constant({}) : objectOf(body),
    },
    { noNullPrototype: true },
  );
}

/** Makes a request with one field that its schema forbids, and names the place of that field. */
export function invalidInput(operation: Operation): fc.Arbitrary<{ input: Input; place: Place; name: string }> | null {
  const fields: { place: Place; name: string; schema: Schema }[] = [
    ...operation.parameters
      .map(({ in: place, name, schema }) => ({ place, name, schema }))
      // A header without a pattern may be any text.
      .filter(({ place, schema }) => place !== 'header' || schema.pattern !== undefined),
    ...Object.entries(operation.body?.properties ?? {}).map(([name, schema]) => ({
      place: 'body' as const,
      name,
      schema,
    })),
  ];
  if (fields.length === 0) return null;
  return fc.tuple(validInput(operation), fc.constantFrom(...fields)).chain(([input, { place, name, schema }]) =>
    invalidValue(place, schema).map((value) => ({
      input: { ...input, [place]: { ...input[place], [name]: value } },
      place,
      name,
    })),
  );
}

function invalidValue(place: Place, schema: Schema): fc.Arbitrary<unknown> {
  // When a service judges each item of a list separately, it refuses the request only when the field is no list.
  const { items: _, ...list } = schema;
  const validator = Compile((schema['x-judged-apart'] === true ? list : schema) as TSchema);
  if (place === 'body') {
    const long = fc.integer({ min: 201, max: 3_000 }).map((length) => 'x'.repeat(length));
    const texts = fc.array(fc.oneof(fc.string(), fc.integer()), { minLength: 1, maxLength: 5 });
    return fc
      .oneof(fc.jsonValue(), fc.string({ unit: 'binary' }), long, texts, fc.constant(Array(1_001).fill('a')))
      .filter((value) => !validator.Check(value));
  }
  const text = place === 'header' ? fc.constantFrom('', 'x'.repeat(256)) : textOfQuery(place);
  return text.filter((value) => !isValidText(value, schema, validator));
}

function textOfQuery(place: Place): fc.Arbitrary<string> {
  const controls = fc.constantFrom('\u0000', 'a\u001fb', '\u007f', '\u0085');
  const words = fc.oneof(fc.string(), fc.double().map(String), fc.constant('x'.repeat(place === 'path' ? 201 : 2_001)));
  return fc.oneof(controls, words).filter((text) => place === 'query' || text !== '');
}

/**
 * Whether the service accepts a text in a path, a query or a header. The service reads numbers and booleans from such a
 * text. For a list it reads a single text as a list with one item.
 */
function isValidText(text: string, { type }: Schema, validator: Validator): boolean {
  if (type === 'array') return validator.Check([text]);
  if (type === 'integer') return /^\d{1,16}$/.test(text) && validator.Check(Number(text));
  if (type === 'boolean') return text === 'true' || text === 'false';
  return validator.Check(text);
}

function fieldOf(name: string, schema: Schema): fc.Arbitrary<unknown> {
  const by_rule = BY_NAME[name];
  if (by_rule !== undefined) return by_rule;
  return /^(instance|meeting)_id$/.test(name)
    ? fc.oneof(fc.constantFrom(...KNOWN_IDS), valueOf(schema))
    : valueOf(schema);
}

function valueOf(schema: Schema): fc.Arbitrary<unknown> {
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map(valueOf));
  switch (schema.type) {
    case 'string':
      return stringOf(schema);
    case 'integer':
    case 'number':
      return fc.integer({ min: schema.minimum ?? -(2 ** 31), max: Math.min(schema.maximum ?? 2 ** 31, 2 ** 31) });
    case 'boolean':
      return fc.boolean();
    case 'array':
      return fc.oneof(
        fc.array(valueOf(schema.items ?? {}), { minLength: schema.minItems ?? 0, maxLength: 5 }),
        ...(schema.items?.type === 'string'
          ? [fc.constant(Array.from({ length: schema.maxItems ?? 0 }, (_, i) => `a${i}`))]
          : []),
      );
    case 'object':
      return objectOf(schema);
    case 'null':
      return fc.constant(null);
    case undefined:
      break;
  }
  return fc.jsonValue();
}

function stringOf({ format, pattern = '', minLength, maxLength = 200 }: Schema): fc.Arbitrary<string> {
  if (format === 'date-time')
    return fc
      .date({ noInvalidDate: true, min: new Date(0), max: new Date('2100-01-01') })
      .map((date) => date.toISOString());
  const matches = new RegExp(pattern, 'u');
  const length = { minLength: minLength ?? 0, maxLength: Math.min(maxLength, 200) };
  return fc
    .oneof(
      fc.string({ unit: 'grapheme', ...length }),
      fc.string({ unit: 'binary', ...length }),
      fc.constantFrom('a', '__proto__', '%00', '../..', ' ', 'x'.repeat(Math.min(maxLength, 200))),
    )
    .filter((text) => matches.test(text) && text.length >= length.minLength && [...text].length <= length.maxLength);
}

function objectOf({
  properties = {},
  required = [],
  minProperties = 0,
  'x-required-unless': rule,
}: Schema): fc.Arbitrary<Record<string, unknown>> {
  const requiredKeys = rule === undefined ? required : [...required, rule.field];
  const made = Object.entries(properties).filter(([name]) => !NEVER_MADE.has(name));
  const fields = made.map(([name, schema]) => [name, fieldOf(name, schema)] as const);
  return fc
    .record(Object.fromEntries(fields), { requiredKeys, noNullPrototype: true })
    .filter((object) => Object.keys(object).length >= minProperties);
}
