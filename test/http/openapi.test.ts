/** The OpenAPI document has what the author of a client needs. */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import type { OpenSession, Page, ProblemDetails, Session } from '@convoke/sdk';
import type { TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { openapiDocument } from '../../scripts/openapi.ts';
import { program } from '../../src/cli/program/program.ts';
import { DELIVERY_STATES, mayQueueAgain } from '../../src/domain/delivery.ts';
import { finished } from '../../scripts/openapi_document.ts';
import { resolved, type Schema } from '../support/operations.ts';
import { type Answer, assertProblem, startService, useService } from '../support/service.ts';

interface Described {
  description?: string;
}

interface Media {
  schema: Field;
  example?: unknown;
  examples?: Record<string, { value: unknown }>;
}

type Field = Schema & Described & { $ref?: string; examples?: unknown[]; properties?: Record<string, Field> };

interface Operation extends Described {
  operationId: string;
  summary?: string;
  parameters?: (Described & Media & { name: string; in: string; required?: boolean; 'x-go-name'?: string })[];
  requestBody?: Described & { content: Record<string, Media> };
  responses: Record<string, Described & { headers?: Record<string, Described>; content?: Record<string, Media> }>;
}

interface Document {
  info: { license: object };
  paths: Record<string, Record<string, Operation>>;
  webhooks: Record<string, { post: Operation }>;
  components: { schemas: Record<string, Field> };
}

function operationsOf({ paths, webhooks }: Document): Operation[] {
  return [...Object.values(paths), ...Object.values(webhooks)].flatMap((each) => Object.values(each));
}

/** Lists the parts without a description. */
function undescribed(document: Document): string[] {
  const missing: string[] = [];
  const look = (where: string, { description, $ref }: Described & { $ref?: string }): void => {
    if ((description ?? '') === '' && $ref === undefined) missing.push(where);
  };
  const lookWithin = (where: string, field: Field): void => {
    look(where, field);
    for (const [name, each] of Object.entries(field.properties ?? {})) lookWithin(`${where}.${name}`, each);
    if (field.items?.properties !== undefined) lookWithin(`${where}[]`, field.items);
  };
  for (const [name, schema] of Object.entries(document.components.schemas)) lookWithin(name, schema);
  for (const operation of operationsOf(document)) {
    const { operationId, summary = '', parameters = [], requestBody, responses } = operation;
    look(operationId, operation);
    if (summary === '') missing.push(`${operationId}: its summary`);
    for (const parameter of parameters) look(`${operationId}: ${parameter.name}`, parameter);
    for (const { schema } of Object.values(requestBody?.content ?? {})) lookWithin(`${operationId}: its body`, schema);
    for (const [status, response] of Object.entries(responses)) {
      look(`${operationId}: ${status}`, response);
      for (const [name, header] of Object.entries(response.headers ?? {})) look(`${operationId}: ${name}`, header);
      for (const { schema } of Object.values(response.content ?? {})) lookWithin(`${operationId}: ${status}`, schema);
    }
  }
  return missing;
}

/** Lists the examples that do not fit their schema. */
function wrongExamples(document: Document): string[] {
  const wrong: string[] = [];
  const hold = (schema: Field, example: unknown): void => {
    if (!Compile(schema as TSchema).Check(example)) wrong.push(JSON.stringify(example));
  };
  const look = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return;
    const { schema, example, examples, type } = node as Media & { type?: unknown };
    if (schema !== undefined && example !== undefined) hold(schema, example);
    if (schema !== undefined) for (const { value } of Object.values(examples ?? {})) hold(schema, value);
    if (type !== undefined && Array.isArray(examples)) for (const each of examples) hold(node, each);
    Object.values(node).forEach(look);
  };
  look(resolved(document));
  return wrong;
}

const JOIN = '"instance_id":"i","agent_ids":[]';

describe('the OpenAPI document', () => {
  const service = useService();
  let document: Document;
  before(async () => (document = (await service.get<Document>('/openapi.json')).body));

  test('describes every operation, parameter, body, answer, header and field', () => {
    assert.ok(operationsOf(document).length > 30);
    assert.deepEqual(undescribed(document), []);
  });

  test('control: an undescribed response is found', () => {
    const { schemas } = document.components;
    const properties = { ...schemas['Problem']?.properties, detail: { type: 'string' } as const };
    const components = { schemas: { ...schemas, Problem: { ...schemas['Problem'], properties } } };
    assert.deepEqual(undescribed({ ...document, components }), ['Problem.detail']);
  });

  test('names the schema of every body and of every answer in JSON', () => {
    for (const { operationId, requestBody, responses } of Object.values(document.paths).flatMap((methods) =>
      Object.values(methods),
    )) {
      for (const content of [requestBody?.content, ...Object.values(responses).map((each) => each.content)]) {
        for (const [type, { schema }] of Object.entries(content ?? {})) {
          if (type.includes('json')) assert.match(schema.$ref ?? '', /^#\/components\/schemas\/\w+$/, operationId);
        }
      }
    }
    const names = Object.keys(document.components.schemas);
    for (const name of [
      'Instance',
      'Membership',
      'Meeting',
      'Message',
      'Delivery',
      'Attempt',
      'Problem',
      'InstancePage',
    ])
      assert.ok(names.includes(name), name);
  });

  test('has no two schemas of one name', () => {
    const answerOf = (type: string) => ({ content: { 'application/json': { schema: { title: 'One', type } } } });
    const documentOf = (type: string) => ({
      paths: { '/a': { get: { responses: { 200: answerOf('string'), 201: answerOf(type) } } } },
    });
    assert.throws(() => finished(documentOf('integer')), /two schemas are called One/);
    const { paths, components } = finished({ ...documentOf('string'), components: {} });
    assert.deepEqual(components, { schemas: { One: { type: 'string' } } });
    assert.deepEqual(paths['/a'].get.responses[200].content['application/json'].schema, {
      $ref: '#/components/schemas/One',
    });
  });

  test('has a name in Go for a header that is called as a query parameter is', () => {
    const named = operationsOf(document).flatMap(({ parameters = [] }) =>
      parameters.filter((each) => 'x-go-name' in each),
    );
    assert.deepEqual(
      named.map((each) => [each.in, each.name, each['x-go-name']]),
      [['header', 'last-event-id', 'LastEventIdHeader']],
    );
  });

  test('has examples that its own schemas take', () => assert.deepEqual(wrongExamples(document), []));

  test('control: an example that its schema refuses is found', () => {
    const schemas = { One: { type: 'string', pattern: '^a$', examples: ['b'] } as const };
    assert.deepEqual(wrongExamples({ ...document, components: { schemas } as never }), ['"b"']);
  });

  test('is what the routes say, as it is served from the file openapi.json', async () => {
    assert.deepEqual(document, await openapiDocument());
  });

  test('names each state from which a delivery can be queued again, and so does the help of the command', () => {
    const described = operationsOf(document).filter(({ operationId }) => /^(retryDelivery|recover)$/.test(operationId));
    const deliveries = program().commands.find((command) => command.name() === 'deliveries');
    const retry = deliveries?.commands.find((command) => command.name() === 'retry');
    const states = DELIVERY_STATES.filter((state) => mayQueueAgain({ state, reason: null }));
    assert.deepEqual(states, ['failed', 'cancelled']);
    const texts = [...described.map(({ description }) => description), retry?.description()];
    assert.equal(texts.length, 3);
    for (const state of states) for (const text of texts) assert.match(text ?? '', new RegExp(state));
  });

  test('says under which licence it is', () => {
    assert.deepEqual(document.info.license, { name: 'MIT', identifier: 'MIT' });
  });

  test('says which ids of an instance and of a meeting are refused, although their pattern takes them', async () => {
    const register = { instance_name: 'n', agent_ids: [], webhook_url: 'http://127.0.0.1:1/' };
    const refused = [
      ['RegisterInput', 'instance_id', '/api/v1/instances/register/', { ...register, instance_id: '..' }],
      ['JoinMeetingInput', 'meeting_id', '/api/v1/instances/join-meeting/', `{"meeting_id":"..",${JOIN}}`],
      ['JoinMeetingInput', 'meeting_id', '/api/v1/instances/join-meeting/', `{"meeting_id":1e3,${JOIN}}`],
    ] as const;
    const words = [/not `\.` or `\.\.`/, /not `\.` or `\.\.`/, /An integer in digits/];
    for (const [i, [schema, name, path, body]] of refused.entries()) {
      const { errors } = assertProblem(await service.post(path, body), 422, 'invalid_fields');
      assert.deepEqual(
        errors?.map((error) => error.path),
        [name],
      );
      assert.match(document.components.schemas[schema]?.properties?.[name]?.description ?? '', words[i]!);
    }
  });

  test('describes what a request with a session gets', async (t) => {
    const own = await startService(t);
    const { token } = await own.endOpenMode();
    own.token = null;
    const as_key = { headers: { authorization: `Bearer ${token}` } };
    const { headers, body } = await own.request<Session>('POST', '/api/v1/session/', as_key);
    const [cookie = ''] = String(headers['set-cookie']).split(';');
    const call = (method: string, path: string, csrf = String(body.csrf_token)) =>
      own.request(method, path, { headers: { cookie, origin: own.url, 'convoke-csrf': csrf } });
    const described = ({ status, body: answer }: Answer<ProblemDetails>, path: string, method: string) => {
      const { description = '' } = document.paths[path]?.[method]?.responses[status] ?? {};
      assert.ok(description.includes(`${answer.code}: `), `${method} ${path}: ${answer.code}`);
    };
    const list = '/api/v1/instances/';
    described(await call('GET', list, 'wrong'), list, 'get');
    const sessions = (await call('GET', '/api/v1/sessions/')) as Answer<Page<OpenSession>>;
    const [session] = sessions.body.data;
    const ended = await call('DELETE', `/api/v1/sessions/${session?.session_id}/`);
    assert.equal(ended.status, 204);
    assert.match(String(ended.headers['set-cookie']), /Max-Age=0/);
    const of_end = document.paths['/api/v1/sessions/{session_id}/']?.['delete']?.responses['204'];
    assert.ok('set-cookie' in (of_end?.headers ?? {}));
    described(await call('GET', list), list, 'get');
    described(await call('DELETE', '/api/v1/session/'), '/api/v1/session/', 'delete');
  });

  test('describes a push as it arrives: its body, and every header that Convoke sets', async (t) => {
    const { post } = resolved(document).webhooks['new_message'] ?? {};
    assert.ok(post !== undefined);
    const { instance_id, receiver } = await service.member(t, 'said');
    await service.send('said', { content: 'Hello' });
    await receiver.count(1);
    await service.post('/api/v1/instances/webhook-test/', { instance_id });
    assert.equal(receiver.requests.length, 2);
    const body = Compile(post.requestBody?.content['application/json']?.schema as TSchema);
    const described = new Map((post.parameters ?? []).map((each) => [each.name, each]));
    for (const { text, headers } of receiver.requests) {
      assert.ok(body.Check(JSON.parse(text)), text);
      const of_http = new Set(['host', 'connection', 'content-type', 'content-length']);
      const unknown = Object.keys(headers).filter((name) => !of_http.has(name) && !described.has(name));
      assert.deepEqual(unknown, []);
      for (const { name, required } of described.values())
        if (required === true) assert.notEqual(headers[name], undefined, name);
    }
    assert.ok(!body.Check({ ...JSON.parse(receiver.requests[0]?.text ?? ''), timestamp: 1 }), 'control');
  });
});
