import type { FastifySchemaCompiler } from 'fastify';
import type { TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/compile';
import { nearestName } from '../domain/nearest.ts';
import { type FieldError, Problem } from '../domain/problem.ts';

/** Errors listed in one answer. */
const ERRORS_MAX = 20;

/** Validates with the route's own schemas; nothing is coerced but the text of query parameters, and nothing removed. */
export const validatorCompiler: FastifySchemaCompiler<TSchema> = ({ schema, httpPart }) => {
  // Compiled when it is first needed: all of them together cost a start 150 ms.
  let validator: Validator | undefined;
  return (data: unknown) => {
    validator ??= Compile(schema);
    const value = httpPart === 'querystring' ? fromText(schema, data as Record<string, unknown>) : data;
    if (validator.Check(value)) return { value };
    return { error: problemOf(schema, validator.Errors(value)) };
  };
};

interface SchemaNode {
  type?: string;
  'x-expected'?: string;
  enum?: readonly unknown[];
  properties?: Record<string, SchemaNode>;
  patternProperties?: Record<string, SchemaNode>;
  items?: SchemaNode;
}

interface ValidationError {
  keyword: string;
  instancePath: string;
  params: object;
  message: string;
}

function problemOf(schema: TSchema, errors: readonly ValidationError[]): Problem {
  const found = new Map<string, FieldError>();
  for (const error of errors) {
    for (const field of fieldErrorsOf(schema, error)) {
      if (!found.has(field.path)) found.set(field.path, field);
    }
  }
  const fields = [...found.values()].slice(0, ERRORS_MAX);
  const detail = fields.map(detailOf).join('; ');
  return new Problem('invalid_fields', detail, { errors: fields });
}

function fieldErrorsOf(schema: SchemaNode, error: ValidationError): FieldError[] {
  const path = error.instancePath.split('/').slice(1).map(unescapePointer);
  const params = error.params as { requiredProperties?: string[]; additionalProperties?: string[] };
  const within = (name: string): string => [...path, name].join('.');
  if (params.requiredProperties !== undefined) {
    return params.requiredProperties.map((name) => ({ path: within(name), message: 'is required' }));
  }
  const node = nodeAt(schema, path);
  if (params.additionalProperties !== undefined && node?.properties !== undefined) {
    const known = Object.keys(node.properties);
    return params.additionalProperties.map((name) => ({ path: within(name), message: unknownField(name, known) }));
  }
  // What is said of an unknown field itself ("schema is false") is said better by the object that it stands in.
  if (error.keyword === 'boolean') return [];
  if (path.length === 0 && error.keyword === 'type') return [{ path: '', message: 'must be a JSON object' }];
  return [{ path: path.join('.'), message: expectation(schema, path) ?? error.message }];
}

function detailOf({ path, message }: FieldError): string {
  if (message.startsWith('unknown field')) return message;
  return `${path === '' ? 'the body' : path} ${message}`;
}

function unknownField(name: string, known: string[]): string {
  const near = nearestName(name, known);
  return near === null
    ? `unknown field ${name}; known are ${known.join(', ')}`
    : `unknown field ${name}; did you mean ${near}?`;
}

/** What the schema expects at a path, or else at the nearest place above it that says. */
function expectation(schema: SchemaNode, path: string[]): string | undefined {
  for (let length = path.length; length >= 0; length--) {
    const node = nodeAt(schema, path.slice(0, length));
    if (node?.['x-expected'] !== undefined) return node['x-expected'];
    if (node?.enum !== undefined) return `must be one of ${node.enum.join(', ')}`;
    if (node?.type !== undefined && length === path.length && node.type !== 'object') return `must be a ${node.type}`;
  }
  return undefined;
}

function nodeAt(schema: SchemaNode, path: string[]): SchemaNode | undefined {
  let node: SchemaNode | undefined = schema;
  for (const step of path) {
    node = node?.properties?.[step] ?? node?.items ?? Object.values(node?.patternProperties ?? {})[0];
  }
  return node;
}

function unescapePointer(step: string): string {
  return step.replaceAll('~1', '/').replaceAll('~0', '~');
}

/** Query parameters are text: numbers and booleans are read from it where the schema wants them. */
function fromText(schema: SchemaNode, query: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(query).map(([name, text]) => {
      const type = schema.properties?.[name]?.type;
      if (type === 'integer' && typeof text === 'string' && /^\d{1,16}$/.test(text)) return [name, Number(text)];
      if (type === 'boolean' && (text === 'true' || text === 'false')) return [name, text === 'true'];
      return [name, text];
    }),
  );
}
