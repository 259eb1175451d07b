/**
 * Makes the document of what @fastify/swagger collects. The routes' schemas stay whole, so that a request is validated, and
 * a handler typed, without looking anything up; that one of them is used in several places is seen here, by its title.
 */

/**
 * Text in UTF-8 has no lone surrogates; they come as escapes in JSON, and validation refuses them. Regular expressions
 * of other languages cannot even name them.
 */
const SURROGATES = String.raw`\\ud800-\\udfff`;

/** Under these stand values, and no schemas. */
const VALUES: ReadonlySet<string> = new Set(['example', 'examples', 'default', 'enum']);

type Json = string | number | boolean | null | Json[] | JsonMap;
interface JsonMap {
  [name: string]: Json;
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
  const schemas = new Map<string, JsonMap>();
  const { paths, webhooks } = plain;
  const lifted = { ...plain, paths: lift(paths as Json, schemas), webhooks: lift(webhooks as Json, schemas) };
  const by_name = Object.fromEntries([...schemas].toSorted(([a], [b]) => (a < b ? -1 : 1)));
  return { ...lifted, components: { ...plain.components, schemas: by_name } };
}

/** It says of every body that it is required. */
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

/** The same with a $ref for each schema that has a title; what it stands for goes into `schemas`. */
function lift(node: Json, schemas: Map<string, JsonMap>): Json {
  if (Array.isArray(node)) return node.map((each) => lift(each, schemas));
  if (typeof node !== 'object' || node === null) return node;
  const lifted: JsonMap = Object.fromEntries(
    Object.entries(node).map(([name, value]) => [name, VALUES.has(name) ? value : lift(value, schemas)]),
  );
  const { title, ...schema } = lifted;
  if (typeof title !== 'string') return lifted;
  const known = schemas.get(title);
  if (known !== undefined && textOf(known) !== textOf(schema)) throw new Error(`two schemas are called ${title}`);
  schemas.set(title, { ...schema, ...known });
  return { $ref: `#/components/schemas/${title}` };
}

/** Of a schema at the root of a parameter or a body, the library moves the description and the examples elsewhere. */
function textOf({ description: _description, examples: _examples, ...schema }: JsonMap): string {
  return JSON.stringify(schema);
}
