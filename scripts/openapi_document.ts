/**
 * Makes the document of what @fastify/swagger collects. The routes' schemas stay whole, so that a request is validated, and
 * a handler typed, without looking anything up; that one of them is used in several places is seen here, by its title.
 */

/**
 * Text in UTF-8 has no lone surrogates; they are escapes in JSON, and validation refuses them. Regular expressions
 * of other languages cannot even name them.
 */
const SURROGATES = String.raw`\\ud800-\\udfff`;

/** Under these stand values, and no schemas. */
const VALUES: ReadonlySet<string> = new Set(['example', 'examples', 'default', 'enum']);

type Json = string | number | boolean | null | Json[] | JsonMap;
interface JsonMap {
  [name: string]: Json;
}

/** A schema that has a title, and its text unchanged. */
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

/** The document with what @fastify/swagger cannot know, and a component for each schema that has a title. */
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

/** Every body is required, and says so. */
function mendBody({ requestBody }: Operation): void {
  const body = requestBody?.content['application/json']?.schema;
  if (requestBody !== undefined && body?.required === undefined && body?.minProperties === undefined)
    requestBody.required = false;
}

/** oapi-codegen makes one identifier of `last_event_id` in the query and `Last-Event-ID` in the head, and then does not compile. */
function mendParameters({ parameters = [] }: Operation): void {
  const plainName = (name: string): string => name.replaceAll(/[^a-z]/gi, '').toLowerCase();
  const in_query = new Set(parameters.filter((each) => each.in === 'query').map(({ name }) => plainName(name)));
  for (const parameter of parameters) {
    if (parameter.in !== 'header' || !in_query.has(plainName(parameter.name))) continue;
    const words = parameter.name.split('-').map((word) => word.charAt(0).toUpperCase() + word.slice(1));
    parameter['x-go-name'] = `${words.join('')}Header`;
  }
}

/** Puts a $ref in the place of each schema that has a title, and what it stands for among the named ones. */
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

/** Of a schema at the root of a parameter or a body, the library moves the description and the examples elsewhere. */
function textOf({ description: _description, examples: _examples, ...schema }: JsonMap): string {
  return JSON.stringify(schema);
}
