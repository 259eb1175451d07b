/**
 * Writes the SDK's types from the OpenAPI document: an interface for each component and each query. Two packages did
 * not fit. openapi-typescript needs the compiler's API, which TypeScript 7 does not have, and writes one nested
 * interface that an editor cannot show. json-schema-to-typescript knows no queries, and does not allow undefined for
 * optional inputs.
 */
import { format, resolveConfig } from 'prettier';
import { type Document, nameOf, type Operation, type Schema } from './openapi_shapes.ts';

/** The names that differ between the SDK and the document. */
const NAMES: Record<string, string> = {
  Problem: 'ProblemDetails',
  StreamEventsQuery: 'EventsQuery',
  ListKeysQuery: 'PageQuery',
};

/** Left out: the SDK has a generic type for pages with a cursor, and no method uses the other types. */
const LEFT_OUT =
  /^(\w+(?<!Message)Page|SendMessageInput|ServiceNodeList|ServiceStatus|SignInByLinkInput|WebhookTestInput)$/;

const HEAD =
  '// Written from the OpenAPI document by `npm run generate`: change the schemas in src/http/schemas/ instead.\n\n';

const WIDTH = 120;

/** The text of sdk/typescript/src/schemas.ts. */
export async function sdkTypes(document: object): Promise<string> {
  const { paths, components } = document as Document;
  const { schemas } = components;
  const operations = Object.values(paths).flatMap((methods) => Object.values(methods));
  const inputs = new Set(operations.map(({ requestBody }) => nameOf(requestBody?.content['application/json']?.schema)));
  const answers = Object.fromEntries(Object.entries(schemas).filter(([name]) => !inputs.has(name)));
  const types = Object.entries(schemas)
    .filter(([name]) => !LEFT_OUT.test(name))
    .map(([name, schema]) => (inputs.has(name) ? inputType(name, schema) : answerType(name, schema, answers)));
  const queries = operations.map(queryOf).filter((query) => query !== null);
  const options = await resolveConfig(new URL('../sdk/typescript/src/schemas.ts', import.meta.url));
  return format(HEAD + [...types, ...queries].join('\n'), { ...options, parser: 'typescript' });
}

function queryOf({ operationId, parameters = [] }: Operation): string | null {
  const in_query = parameters.filter((each) => each.in === 'query');
  if (in_query.length === 0) return null;
  const properties = in_query.map(({ name, description, schema }) => [
    name,
    { ...schema, description: description ?? '' },
  ]);
  const name = `${operationId.charAt(0).toUpperCase()}${operationId.slice(1)}Query`;
  const description = `The query of the operation \`${operationId}\`.`;
  return inputType(name, { description, properties: Object.fromEntries(properties) as Record<string, Schema> });
}

/** The type of an input. An optional field may also be undefined, because JSON leaves it out. */
function inputType(name: string, schema: Schema): string {
  return `${comment(schema)}export interface ${NAMES[name] ?? name} ${objectOf(schema, ' | undefined')}\n`;
}

function answerType(name: string, schema: Schema, answers: Record<string, Schema>): string {
  const { properties } = schema;
  const sdk_name = NAMES[name] ?? name;
  if (properties === undefined) return `${comment(schema)}export type ${sdk_name} = ${typeOf(schema)};\n`;
  const [base, base_fields] = baseOf(properties, answers) ?? [null, 0];
  const own = { ...schema, properties: Object.fromEntries(Object.entries(properties).slice(base_fields)) };
  return `${comment(schema)}export interface ${sdk_name} ${base === null ? '' : `extends ${base} `}${objectOf(own)}\n`;
}

/**
 * The component that these properties begin with, and the number of its fields: a schema may begin with all fields of
 * another schema.
 */
function baseOf(properties: Record<string, Schema>, answers: Record<string, Schema>): [string, number] | undefined {
  const texts = (fields: Record<string, Schema> = {}): string[] =>
    Object.entries(fields).map((each) => JSON.stringify(each));
  const whole = texts(properties);
  for (const [name, schema] of Object.entries(answers)) {
    const begin = texts(schema.properties);
    const is_begin = begin.length > 0 && begin.length < whole.length && begin.every((field, i) => field === whole[i]);
    if (is_begin) return [name, begin.length];
  }
  return undefined;
}

function typeOf(schema: Schema): string {
  const name = nameOf(schema);
  if (name !== undefined) return NAMES[name] ?? name;
  if (schema.enum !== undefined) return schema.enum.map((value) => `'${value}'`).join(' | ');
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(' | ');
  switch (schema.type) {
    case 'integer':
      return 'number';
    case 'array':
      return `(${typeOf(schema.items ?? {})})[]`;
    case 'object':
      return schema.properties === undefined ? recordOf(schema) : objectOf(schema);
    case undefined:
      return 'unknown';
    default:
      return schema.type;
  }
}

function recordOf({ additionalProperties }: Schema): string {
  return `Record<string, ${typeof additionalProperties === 'object' ? typeOf(additionalProperties) : 'unknown'}>`;
}

/** @param beside what an optional field may be, apart from its type */
function objectOf({ properties = {}, required = [] }: Schema, beside = ''): string {
  const fields = Object.entries(properties).map(([name, schema]) =>
    required.includes(name)
      ? `${comment(schema, 2)}${name}: ${typeOf(schema)};\n`
      : `${comment(schema, 2)}${name}?: ${typeOf(schema)}${beside};\n`,
  );
  return `{\n${fields.join('')}}`;
}

/** @param indent how far prettier indents the comment */
function comment({ description }: Schema, indent = 0): string {
  if (description === undefined) return '';
  if (indent + description.length + '/**  */'.length <= WIDTH) return `/** ${description} */\n`;
  const lines = [''];
  for (const word of description.split(' ')) {
    const longer = `${lines.at(-1)} ${word}`;
    if (indent + longer.length + ' *'.length <= WIDTH) lines[lines.length - 1] = longer;
    else lines.push(` ${word}`);
  }
  return `/**\n${lines.map((line) => ` *${line}\n`).join('')} */\n`;
}
