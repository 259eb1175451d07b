/**
 * Makes the document from what @fastify/swagger collects. The schemas of the routes contain no references, so
 * validation and the types of handlers need no look-ups. Here a schema with a title becomes a component, because
 * several places use it.
 */

/**
 * Left out of patterns, because regular expressions of other languages cannot name surrogates. Validation refuses a
 * lone surrogate anyway; only an escape in JSON can contain one.
 */
const SURROGATES = String.raw`\\ud800-\\udfff`;

/** The fields that contain values and no schemas. */
const VALUES: ReadonlySet<string> = new Set(['example', 'examples', 'default', 'enum']);

type Json = string | number | boolean | null | Json[] | JsonMap;
interface JsonMap {
  [name: string]: Json;
}

/** A schema with a title, and its unchanged text. */
interface Named {
  schema: JsonMap;
  text: string;
}

interface Operation {
  requestBody?: {
    required?: boolean;
    content: Record<string, { schema?: { required?: string[]; minProperties?: number } }>;
  };
  parameters?: { name: string; in: string; 'x-go-name'?: string }[];
}

interface Document {
  paths?: object | undefined;
  webhooks?: object | undefined;
  components?: object | undefined;
}

/** Adds to the document what @fastify/swagger cannot know, and a component for each schema with a title. */
export function finished<Given extends Document>(document: Given): Given {
  const plain = JSON.parse(JSON.stringify(document).replaceAll(SURROGATES, '')) as Given;
  for (const operation of Object.values(plain.paths ?? {}).flatMap((path) => Object.values(path as object))) {
    mendBody(operation as Operation);
    mendParameters(operation as Operation);
  }
  const named = new Map<string, Named>();
  lift((plain.paths ?? {}) as JsonMap, named);
  lift((plain.webhooks ?? {}) as JsonMap, named);
  const schemas = [...named]
    .map(([title, { schema }]) => [title, schema] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  return { ...plain, components: { ...plain.components, schemas: Object.fromEntries(schemas) } };
}

/** Marks a body as optional when `{}` is valid. @fastify/swagger marks every body as required. */
function mendBody({ requestBody }: Operation): void {
  const body = requestBody?.content['application/json']?.schema;
  if (requestBody !== undefined && body?.required === undefined && body?.minProperties === undefined)
    requestBody.required = false;
}

/**
 * Gives a parameter a name of its own in Go, for oapi-codegen. That generator makes the same identifier of
 * `last_event_id` in the query and `Last-Event-ID` in the head, so the generated client would not compile.
 */
function mendParameters({ parameters = [] }: Operation): void {
  const plainName = (name: string): string => name.replaceAll(/[^a-z]/gi, '').toLowerCase();
  const in_query = new Set(parameters.filter((each) => each.in === 'query').map(({ name }) => plainName(name)));
  for (const parameter of parameters) {
    if (parameter.in !== 'header' || !in_query.has(plainName(parameter.name))) continue;
    const words = parameter.name.split('-').map((word) => word.charAt(0).toUpperCase() + word.slice(1));
    parameter['x-go-name'] = `${words.join('')}Header`;
  }
}

/** Replaces each schema that has a title by a $ref, and collects the schema in `named`. */
function lift(node: JsonMap | Json[], named: Map<string, Named>): void {
  for (const [name, value] of Object.entries(node)) {
    if (typeof value !== 'object' || value === null || VALUES.has(name)) continue;
    if (Array.isArray(value) || typeof value['title'] !== 'string') lift(value, named);
    else (node as JsonMap)[name] = referenceTo(value['title'], value, named);
  }
}

function referenceTo(title: string, { title: _title, ...schema }: JsonMap, named: Map<string, Named>): JsonMap {
  const text = textOf(schema);
  const known = named.get(title);
  if (known !== undefined && known.text !== text) throw new Error(`two schemas are called ${title}`);
  if (known === undefined) {
    named.set(title, { schema, text });
    lift(schema, named);
  } else if (schema['description'] !== undefined) {
    known.schema['description'] ??= schema['description'];
  }
  return { $ref: `#/components/schemas/${title}` };
}

/**
 * The text by which schemas are compared. Leaves out description and examples: when the schema is that of a parameter or
 * of a body, the library has moved these to another place.
 */
function textOf({ description: _description, examples: _examples, ...schema }: JsonMap): string {
  return JSON.stringify(schema);
}
