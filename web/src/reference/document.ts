/** The parts of the service's OpenAPI document that the page of the API reads. */

export interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  format?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  examples?: unknown[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  anyOf?: Schema[];
  additionalProperties?: boolean | Schema;
  minimum?: number;
  maximum?: number;
  maxItems?: number;
  'x-expected'?: string;
}

export interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema?: Schema;
  example?: unknown;
}

type Content = Record<string, { schema?: Schema; example?: unknown; examples?: Record<string, { value: unknown }> }>;

interface Body {
  description?: string;
  required?: boolean;
  content: Content;
}

export interface Response {
  description: string;
  headers?: Record<string, { description?: string }>;
  content?: Content;
}

interface RawOperation {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  parameters?: Parameter[];
  requestBody?: Body;
  security?: Record<string, string[]>[];
  responses: Record<string, Response>;
}

export interface ApiDocument {
  info: { title: string; version: string; description: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, RawOperation>>;
  webhooks: Record<string, Record<string, RawOperation>>;
  components: { schemas: Record<string, Schema> };
}

export interface Operation extends RawOperation {
  method: string;
  /** Null for a webhook: the service itself makes that request. */
  path: string | null;
  body: { schema: Schema; example: unknown; is_required: boolean } | null;
}

export interface Group {
  name: string;
  description: string;
  operations: Operation[];
}

/** The operations under their tags, in the order of the document. The webhooks come last. */
export function groupsOf({ tags, paths, webhooks }: ApiDocument): Group[] {
  const all = Object.entries(paths).flatMap(([path, methods]) => operationsOf(methods, path));
  const sent = Object.values(webhooks).flatMap((methods) => operationsOf(methods, null));
  const groups = tags.map((tag) => ({ ...tag, operations: all.filter((each) => each.tags[0] === tag.name) }));
  groups.push({ name: 'webhooks', description: 'What the service sends to an instance.', operations: sent });
  return groups.filter(({ operations }) => operations.length > 0);
}

function operationsOf(methods: Record<string, RawOperation>, path: string | null): Operation[] {
  return Object.entries(methods).map(([method, operation]) => {
    const content = operation.requestBody?.content['application/json'];
    const body = content?.schema && {
      schema: content.schema,
      example: content.example ?? Object.values(content.examples ?? {})[0]?.value ?? {},
      is_required: operation.requestBody?.required === true,
    };
    return { ...operation, method: method.toUpperCase(), path, body: body ?? null };
  });
}

/** `Instance` of `#/components/schemas/Instance`. */
export function nameOf({ $ref }: Schema): string | null {
  return $ref?.split('/').at(-1) ?? null;
}

/** The scopes of which a key needs one; empty when no key is needed. */
export function scopesOf({ security = [] }: Operation): string[] {
  return security.flatMap((each) => Object.values(each).flat());
}

/** The type and limits of a value, in one line. */
export function typeOf(schema: Schema): string {
  const name = nameOf(schema);
  if (name !== null) return name;
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(' or ');
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (schema.type === 'array') return `list of ${schema.items === undefined ? 'anything' : typeOf(schema.items)}`;
  const type = [schema.type ?? 'anything'].flat().join(' or ');
  return schema.format === undefined ? type : `${type} (${schema.format})`;
}

/**
 * The command that makes the call, with the examples of the document. The command takes the key from the variable
 * CONVOKE_API_KEY.
 *
 * @param needs_key whether the service requires keys
 */
export function curlOf(operation: Operation, origin: string, needs_key: boolean): string | null {
  const { method, path, parameters = [], body } = operation;
  if (path === null) return null;
  const example = ({ name, example: value, schema }: Parameter): string => {
    const text = value ?? schema?.examples?.[0];
    return encodeURIComponent(typeof text === 'string' ? text : name);
  };
  const filled = parameters
    .filter((parameter) => parameter.in === 'path')
    .reduce((url, parameter) => url.replace(`{${parameter.name}}`, example(parameter)), path);
  const lines = [`curl ${method === 'GET' ? '' : `-X ${method} `}'${origin}${filled}'`];
  if (needs_key && scopesOf(operation).length > 0) lines.push('  -H "authorization: Bearer $CONVOKE_API_KEY"');
  if (body !== null) {
    lines.push(`  -H 'content-type: application/json'`);
    lines.push(`  -d '${JSON.stringify(body.example).replaceAll("'", String.raw`'\''`)}'`);
  }
  return lines.join(' \\\n');
}
