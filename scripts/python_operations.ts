/**
 * Writes the methods of the Python SDK's clients from the OpenAPI document: one for each operation, with the fields of
 * path, query and body as arguments. Makes two files, for the blocking and for the asynchronous client.
 */
import { docText, HEAD, plainType, wordsOf } from './python_models.ts';
import { type Document, nameOf, type Operation, type Parameter, type Schema } from './openapi_shapes.ts';

/** Methods that are written by hand, because they are more than a request and a response. */
const BY_HAND = new Set(['sendMessage', 'sendReply', 'pull', 'streamEvents', 'fetchBackup', 'redeemInvite']);
/** Operations for pages only. The session of a page is a cookie of its browser, and a token protects the cookie. */
export const OF_BROWSERS = new Set(['getSession', 'signIn', 'signInByLink', 'signOut']);

interface Argument {
  name: string;
  in: 'path' | 'query' | 'body';
  type: string;
  is_required: boolean;
  /** Whether null is a value of its own, so that it differs from an absent argument. */
  may_be_null: boolean;
  description: string;
}

interface Endpoint {
  method: string;
  path: string;
  operation: Operation;
  schemas: Record<string, Schema>;
}

/** @param is_async whether the methods are asynchronous */
export function pythonOperations(document: object, is_async: boolean): string {
  const { paths, components } = document as Document;
  const endpoints: Endpoint[] = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method, path, operation, schemas: components.schemas })),
  );
  const written = endpoints.filter(
    ({ operation: { operationId } }) => !BY_HAND.has(operationId) && !OF_BROWSERS.has(operationId),
  );
  const methods = written.map((endpoint) => methodOf(endpoint, is_async) + (walkOf(endpoint, is_async) ?? ''));
  const text = methods.join('\n');
  const [name, requests] = is_async ? ['AsyncOperations', 'AsyncRequests'] : ['Operations', 'Requests'];
  const typing = ['Literal', 'Any'].filter((each) => new RegExp(`\\b${each}\\b`).test(text)).toSorted();
  const abc = is_async ? ['AsyncIterator'] : ['Iterator'];
  for (const each of ['Mapping', 'Sequence']) if (text.includes(`${each}[`)) abc.push(each);
  const names = Object.keys(components.schemas).filter((each) => new RegExp(`\\b${each}\\b(?!")`).test(text));
  return (
    `${HEAD}"""One method for each operation of the API."""\n\n` +
    'from __future__ import annotations\n\n' +
    `from collections.abc import ${abc.toSorted().join(', ')}\n` +
    'from datetime import datetime\n' +
    (typing.length > 0 ? `from typing import ${typing.join(', ')}\n` : '') +
    '\nfrom convoke_agents.given import LEFT_OUT, LeftOut, given\n' +
    `from convoke_agents.models import (\n${names
      .toSorted()
      .map((each) => `    ${each},\n`)
      .join('')})\n` +
    `from convoke_agents.requests import ${requests}, segment\n\n\n` +
    `class ${name}:\n` +
    `    """The methods of a client that are one request each."""\n\n` +
    `    _requests: ${requests}\n\n` +
    text
  );
}

function methodOf(endpoint: Endpoint, is_async: boolean): string {
  const { method, path, operation } = endpoint;
  const args = argumentsOf(endpoint);
  const { type, read } = resultOf(operation);
  const head = `    ${is_async ? 'async ' : ''}def ${snake(operation.operationId)}(\n${signatureOf(args)}    ) -> ${type}:\n`;
  const url = path.replaceAll(/\{(\w+)\}/g, '{segment($1)}');
  const parts = [`"${method.toUpperCase()}"`, `${url === path ? '' : 'f'}"${url}"`, read];
  for (const place of ['query', 'body'] as const) {
    const of_place = args.filter((each) => each.in === place);
    if (of_place.length === 0 && !(place === 'body' && operation.requestBody !== undefined)) continue;
    const fields = of_place
      .filter((each) => !each.may_be_null)
      .map(({ name }) => `                ${name}=${name},\n`)
      .join('');
    const nullable = of_place.filter((each) => each.may_be_null).map(({ name }) => `"${name}": ${name}`);
    const first = nullable.length === 0 ? '' : `                {${nullable.join(', ')}},\n`;
    parts.push(first + fields === '' ? `${place}=given()` : `${place}=given(\n${first}${fields}            )`);
  }
  const call = `self._requests.call(\n${parts.map((part) => `            ${part},\n`).join('')}        )`;
  const returned = type === 'None' ? '' : 'return ';
  return `${head}${docOf(operation, args)}        ${returned}${is_async ? 'await ' : ''}${call}\n`;
}

/** The method that goes through all pages of a list; null for an operation without pages. */
function walkOf(endpoint: Endpoint, is_async: boolean): string | null {
  const { operation, schemas } = endpoint;
  const args = argumentsOf(endpoint);
  if (!args.some(({ name }) => name === 'cursor')) return null;
  const item = nameOf(schemas[resultOf(operation).type]?.properties?.['data']?.items);
  const list = snake(operation.operationId);
  const rest = args.filter(({ name }) => name !== 'cursor');
  const given = args.map(({ name, in: place }) => (place === 'path' ? name : `${name}=${name}`));
  const [prefix, kind] = is_async ? ['async ', 'AsyncIterator'] : ['', 'Iterator'];
  const text = `Yields each item of \`${list}\`, and asks for the next page when it is needed. \`limit\` is the size of a page.`;
  return (
    `\n    ${prefix}def ${allOf(list)}(\n${signatureOf(rest)}    ) -> ${kind}[${item}]:\n` +
    `        """${docText(text, '        ')}"""\n` +
    '        cursor: str | None = None\n' +
    '        while True:\n' +
    `            page = ${is_async ? 'await ' : ''}self.${list}(\n${given.map((each) => `                ${each},\n`).join('')}            )\n` +
    (is_async
      ? '            for item in page.data:\n                yield item\n'
      : '            yield from page.data\n') +
    '            cursor = page.next_cursor\n' +
    '            if cursor is None:\n' +
    '                return\n'
  );
}

function argumentsOf({ operation, schemas }: Endpoint): Argument[] {
  const { parameters = [], requestBody } = operation;
  const of_path = parameters.filter((each) => each.in === 'path').map((each) => argumentOf(each, 'path', schemas));
  const body = nameOf(requestBody?.content['application/json']?.schema);
  const { properties = {}, required = [] } = schemas[body ?? ''] ?? {};
  const of_body = Object.entries(properties).map(([name, schema]) =>
    argumentOf({ name, in: 'body', required: required.includes(name), schema }, 'body', schemas),
  );
  const of_query = parameters.filter((each) => each.in === 'query').map((each) => argumentOf(each, 'query', schemas));
  return [...of_path, ...of_body, ...of_query];
}

function argumentOf(parameter: Parameter, place: Argument['in'], schemas: Record<string, Schema>): Argument {
  const { name, required = false, schema } = parameter;
  const may_be_null = schema.anyOf?.some(({ type }) => type === 'null') ?? false;
  const type = place === 'path' && name === 'meeting_id' ? 'str | int' : inputType(schema, schemas);
  const description = parameter.description ?? schema.description ?? '';
  return { name, in: place, type, is_required: required, may_be_null, description };
}

/** The type of an argument. A list may be any sequence, a map any mapping, and a time also a text. */
function inputType(schema: Schema, schemas: Record<string, Schema>): string {
  const name = nameOf(schema);
  if (name !== undefined && schemas[name]?.enum === undefined) return inputType(schemas[name] ?? {}, schemas);
  if (name !== undefined) return name;
  if (schema.enum !== undefined) return wordsOf(schema);
  if (schema.anyOf !== undefined) {
    return [...new Set(schema.anyOf.flatMap((each) => inputType(each, schemas).split(' | ')))].join(' | ');
  }
  if (schema.type === 'array') return `Sequence[${inputType(schema.items ?? {}, schemas)}]`;
  if (schema.type === 'object') {
    const { additionalProperties: values } = schema;
    return `Mapping[str, ${typeof values === 'object' ? inputType(values, schemas) : 'Any'}]`;
  }
  const type = plainType(schema);
  return type === 'datetime' ? 'datetime | str' : type;
}

/** Fields of the path are positional arguments; all other fields are named arguments. */
function signatureOf(args: Argument[]): string {
  const of_path = args.filter((each) => each.in === 'path').map(({ name, type }) => `        ${name}: ${type},\n`);
  const others = args
    .filter((each) => each.in !== 'path')
    .toSorted((a, b) => Number(b.is_required) - Number(a.is_required));
  const named = others.map(({ name, type, is_required, may_be_null }) => {
    if (is_required) return `        ${name}: ${type},\n`;
    if (!may_be_null) return `        ${name}: ${type} | None = None,\n`;
    return `        ${name}: ${type.replace(/ \| None$/, '')} | LeftOut | None = LEFT_OUT,\n`;
  });
  return `        self,\n${of_path.join('')}${named.length > 0 ? '        *,\n' : ''}${named.join('')}`;
}

/** The type that a method returns, and the code that makes it from the response. */
function resultOf({ responses }: Operation): { type: string; read: string } {
  const successes = Object.entries(responses).filter(([status]) => status.startsWith('2'));
  const contents = successes.flatMap(([, { content }]) => Object.entries(content ?? {}));
  const [type, { schema }] = contents[0] ?? ['', { schema: {} }];
  if (type === 'text/plain') return { type: 'str', read: 'str' };
  const name = nameOf(schema) ?? 'None';
  return { type: name, read: name };
}

function docOf({ summary = '', description = '' }: Operation, args: Argument[]): string {
  const indent = '        ';
  const about = [summary.replace(/([^.?!])$/, '$1.'), description].filter((text) => text !== '');
  const paragraphs = about.map((text) => docText(text, indent));
  const listed = args
    .filter((each) => each.description !== '')
    .map(
      (each) => `${indent}:param ${each.name}: ${docText(each.description, `${indent}    `, each.name.length + 4)}\n`,
    );
  const first = paragraphs.join(`\n\n${indent}`);
  return listed.length === 0 ? `${indent}"""${first}"""\n` : `${indent}"""${first}\n\n${listed.join('')}${indent}"""\n`;
}

/** `listInstances` is `list_instances`. */
export function snake(operation_id: string): string {
  return operation_id.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** The name of the method that goes through all pages of an operation. */
function allOf(operation: string): string {
  return operation.startsWith('list_') ? operation.replace('list_', 'all_') : `${operation}_all`;
}
