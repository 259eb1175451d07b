/** A 422 says what a field must be, in the words of its schema. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { before, describe, test } from 'node:test';
import { PollParams, StreamParams, SubscribeParams, UnsubscribeParams } from '../../src/mcp/events/event_types.ts';
import { resolved, type Schema } from '../support/operations.ts';
import { assertProblem, instancePath, useService } from '../support/service.ts';

interface Node extends Schema {
  anyOf?: Node[];
  items?: Node;
  properties?: Record<string, Node>;
  additionalProperties?: Node | boolean;
  'x-expected'?: string;
}

interface Document {
  paths: Record<
    string,
    Record<
      string,
      {
        operationId?: string;
        parameters?: { name: string; schema: Node }[];
        requestBody?: { content: Record<string, { schema: Node }> };
      }
    >
  >;
  components: { schemas: Record<string, Node> };
}

/** "must be a string" says enough of a value without one of these. */
const BOUNDS = [
  'format',
  'maximum',
  'maxItems',
  'maxLength',
  'maxProperties',
  'minimum',
  'minItems',
  'minLength',
  'minProperties',
  'pattern',
  'propertyNames',
  'uniqueItems',
];
const PLAIN_TYPES: unknown[] = ['boolean', 'integer', 'number', 'string'];

/** Lists the places in a schema at which a value can be wrong in a way that has no words. */
function wordless(node: Node, place: string, is_object_of_request = true): string[] {
  const is_bounded = BOUNDS.some((bound) => bound in node);
  const needs_words = is_bounded || !(is_object_of_request || PLAIN_TYPES.includes(node.type));
  const has_words = node['x-expected'] !== undefined || node.enum !== undefined;
  const found = needs_words && !has_words ? [place] : [];
  for (const [name, each] of Object.entries(node.properties ?? {}))
    found.push(...wordless(each, `${place}.${name}`, false));
  if (node.items !== undefined) found.push(...wordless(node.items, `${place}[]`, node['x-judged-apart'] === true));
  if (typeof node.additionalProperties === 'object')
    found.push(...wordless(node.additionalProperties, `${place}{}`, false));
  return found;
}

function inputs(): [place: string, schema: Node][] {
  const text = readFileSync(new URL('../../openapi.json', import.meta.url), 'utf8');
  const { paths } = resolved(JSON.parse(text) as Document);
  const operations = Object.values(paths).flatMap((each) => Object.values(each));
  const of_api = operations.flatMap(({ operationId = '', parameters = [], requestBody }) => [
    ...parameters.map(({ name, schema }): [string, Node] => [`${operationId} ${name}`, schema]),
    ...Object.values(requestBody?.content ?? {}).map(({ schema }): [string, Node] => [operationId, schema]),
  ]);
  const of_events = Object.entries({ PollParams, StreamParams, SubscribeParams, UnsubscribeParams });
  return [...of_api, ...(of_events as [string, Node][])];
}

test('every input with a bound has words for a value out of its bounds', () => {
  const found = inputs();
  assert.ok(found.length > 100);
  assert.deepEqual(
    found.flatMap(([place, schema]) => wordless(schema, place)),
    [],
  );
});

describe('a value out of bounds is answered in words', () => {
  const service = useService();
  before(async () => void (await service.endOpenMode()));
  const OVERLAP = 'must be a whole number from 0 to 2592000';
  const AT_LEAST_ONE = 'must have at least one field';

  test('an overlap, the time of a portal link, and a change of nothing', async (t) => {
    const { instance_id } = await service.member(t, 'm');
    const { key_id } = await service.createKey({ scopes: ['instance'] });
    const wrong: [method: string, path: string, body: object, words: string][] = [
      ['POST', `/api/v1/keys/${key_id}/portal-link/`, { expires_in_s: 7200 }, 'must be a whole number from 1 to 3600'],
      ['POST', `/api/v1/keys/${key_id}/rotate/`, { overlap_seconds: 9e9 }, OVERLAP],
      ['POST', `${instancePath(instance_id)}rotate-secret/`, { overlap_seconds: -1 }, OVERLAP],
      ['PATCH', instancePath(instance_id), {}, AT_LEAST_ONE],
      ['PATCH', '/api/v1/meetings/m/', {}, AT_LEAST_ONE],
    ];
    for (const [method, path, body, words] of wrong) {
      const { errors } = assertProblem(await service.request(method, path, { body }), 422, 'invalid_fields');
      assert.deepEqual(
        errors?.map(({ message }) => message),
        [words],
      );
    }
  });

  test('about the name of a header, and not about its value, when the name is wrong', async () => {
    const register = { instance_id: 'i', instance_name: 'n', agent_ids: [], webhook_url: 'http://127.0.0.1:1/' };
    const message = "must have a name of 1 to 100 letters, digits and !#$%&'*+.^_`|~-";
    for (const name of ['authorization:', 'a b', '', 'é', 'x'.repeat(101)]) {
      const body = { ...register, webhook_headers: { [name]: 'Bearer 1' } };
      const answer = await service.post('/api/v1/instances/register/', body);
      const { errors } = assertProblem(answer, 422, 'invalid_fields');
      const shown = name.length > 80 ? `${name.slice(0, 80)}…` : name;
      assert.deepEqual(errors, [{ path: `webhook_headers.${shown}`, message }]);
    }
  });

  test('about a path that is not valid, without the path', async () => {
    const wrong = {
      '%zz': 'The path is not percent-encoded UTF-8.',
      '%ff': 'The path is not percent-encoded UTF-8.',
      ['a'.repeat(3000)]: 'The path has a part that is too long: an id has at most 200 characters.',
    };
    for (const [id, detail] of Object.entries(wrong)) {
      const answer = await service.get(`/api/v1/instances/${id}/`);
      assert.equal(assertProblem(answer, 400, 'malformed_request').detail, detail);
    }
  });
});
