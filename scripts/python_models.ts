/**
 * Writes the Python SDK's models from the OpenAPI document: a pydantic model for each object, and a type for each set
 * of words. datamodel-code-generator would need Python on the machine of everybody who changes a route. It also makes
 * closed enumerations, with which a client would fail at the first new word of a newer service.
 */
import { type Document, nameOf, type Schema } from './openapi_shapes.ts';

export const HEAD =
  '# Written from the OpenAPI document by `npm run generate`: change the schemas in src/http/schemas/ instead.\n';

const WIDTH = 120;
const QUOTES = 6;

/** Fields that a program must not print by accident. */
const SECRETS = new Set(['webhook_secret', 'token', 'link', 'api_key', 'csrf_token']);

/** The text of sdk/python/src/convoke_agents/models.py. */
export function pythonModels(document: object): string {
  const { schemas } = (document as Document).components;
  const given = givenOnly(document as Document);
  const names = inOrder(schemas).filter((name) => !given.has(name));
  const types = names.map((name) => typeText(name, schemas[name]!, schemas));
  return (
    `${HEAD}"""What Convoke responds. Times are aware \`datetime\`s; where a field has a set of words, a newer service may return others."""\n\n` +
    'from __future__ import annotations\n\n' +
    'from datetime import datetime\nfrom typing import Any, Literal, TypeAlias\n\n' +
    'from pydantic import Field\n\n' +
    'from convoke_agents.model import JsonObject, Model\n\n' +
    `__all__ = [\n${[...names, 'JsonObject']
      .toSorted()
      .map((name) => `    "${name}",\n`)
      .join('')}]\n\n` +
    types.join('\n\n')
  );
}

/**
 * Sorts the names: each follows the names to which its schema refers. JsonObject, the type of senders' messages, is no
 * model; `model.py` defines it.
 */
function inOrder(schemas: Record<string, Schema>): string[] {
  const names = new Set<string>();
  const visit = (name: string): void => {
    if (names.has(name) || name === 'JsonObject') return;
    for (const [, other = ''] of JSON.stringify(schemas[name]).matchAll(/"#\/components\/schemas\/(\w+)"/g))
      visit(other);
    names.add(name);
  };
  Object.keys(schemas).forEach(visit);
  return [...names];
}

/** The schemas that only requests have. The methods of the clients take the fields of these schemas as arguments. */
function givenOnly({ paths, components: { schemas } }: Document): Set<string> {
  const reached = (roots: unknown[]): Set<string> => {
    const names = new Set<string>();
    const visit = (text: string): void => {
      for (const [, name = ''] of text.matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
        if (names.has(name)) continue;
        names.add(name);
        visit(JSON.stringify(schemas[name]));
      }
    };
    roots.forEach((root) => visit(JSON.stringify(root ?? null)));
    return names;
  };
  const operations = Object.values(paths).flatMap((methods) => Object.values(methods));
  const answered = reached(operations.map(({ responses }) => responses));
  const given = reached(operations.map(({ requestBody }) => requestBody));
  return new Set([...given].filter((name) => !answered.has(name) && schemas[name]?.enum === undefined));
}

function typeText(name: string, schema: Schema, schemas: Record<string, Schema>): string {
  const { description = '', properties, required = [] } = schema;
  if (properties === undefined) {
    const about = description === '' ? '' : `"""${docText(description, '')}"""\n`;
    return `${name}: TypeAlias = ${wordsOf(schema)}\n${about}`;
  }
  const fields = Object.entries(properties).map(([field, of]) => {
    const type = responseType(of, schemas);
    const about = of.description === undefined ? '' : `    """${docText(of.description, '    ')}"""\n`;
    const arguments_ = [
      ...(required.includes(field) ? [] : ['default=None']),
      ...(SECRETS.has(field) ? ['repr=False'] : []),
    ];
    const declared = `    ${field}: ${required.includes(field) ? type : orNone(type)}`;
    if (SECRETS.has(field)) return `${declared} = Field(${arguments_.join(', ')})\n${about}`;
    return `${declared}${required.includes(field) ? '' : ' = None'}\n${about}`;
  });
  const about = description === '' ? '' : `    """${docText(description, '    ')}"""\n\n`;
  return `class ${name}(Model):\n${about}${fields.join('')}`;
}

function orNone(type: string): string {
  return type.endsWith(' None') ? type : `${type} | None`;
}

/** The type of a value in a response. A set of words also allows other words, because a newer service may have more. */
function responseType(schema: Schema, schemas: Record<string, Schema>): string {
  const name = nameOf(schema);
  if (name !== undefined) return schemas[name]?.enum === undefined ? name : `${name} | str`;
  if (schema.enum !== undefined) return `${wordsOf(schema)} | str`;
  if (schema.anyOf !== undefined) {
    const types = schema.anyOf.flatMap((each) => responseType(each, schemas).split(/ \| (?![^[]*\])/));
    return [...new Set(types)].toSorted((a, b) => Number(a === 'None') - Number(b === 'None')).join(' | ');
  }
  if (schema.type === 'array') return `list[${responseType(schema.items ?? {}, schemas)}]`;
  if (schema.type !== 'object') return plainType(schema);
  const { additionalProperties: values } = schema;
  return `dict[str, ${typeof values === 'object' ? responseType(values, schemas) : 'Any'}]`;
}

export function wordsOf({ enum: words = [] }: Schema): string {
  return `Literal[${words.map((word) => `"${word}"`).join(', ')}]`;
}

/** The Python type of a plain value. */
export function plainType({ type = '', format }: Schema): string {
  if (format === 'date-time') return 'datetime';
  return { string: 'str', integer: 'int', number: 'float', boolean: 'bool', null: 'None' }[type] ?? 'Any';
}

/**
 * A description as a docstring, in lines of at most WIDTH.
 * @param before how many characters precede the docstring in its first line
 */
export function docText(description: string, indent: string, before = 0): string {
  const lines = [''];
  for (const word of description.replaceAll('\\', '\\\\').replaceAll('"""', "'''").split(/\s+/)) {
    const line = lines.at(-1)!;
    const longer = line === '' ? word : `${line} ${word}`;
    const taken = indent.length + QUOTES + (lines.length === 1 ? before : 0);
    if (line === '' || taken + longer.length <= WIDTH) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  // Four quotes in a row would end the string too early.
  const text = lines.join(`\n${indent}`);
  return text.endsWith('"') ? `${text} ` : text;
}
