/** Every field for a time refuses texts that are no times. Date.parse reads some of them, and a key might never end. */
import assert from 'node:assert/strict';
import { describe, test, type TestContext } from 'node:test';
import fc from 'fast-check';
import type { ApiKey } from '@convoke/sdk';
import { isTime } from '../../src/domain/time.ts';
import { makeDatabase } from '../support/postgres.ts';
import { assertProblem, startService } from '../support/service.ts';

const NO_TIMES = [
  // A leap second: Date.parse returns NaN for it, and SQLite NULL.
  '2026-12-31T23:59:60Z',
  '2026-12-31T23:59:60.5Z',
  '2027-01-01T00:59:60+01:00',
  '2026-12-31T24:00:00Z',
  '2026-02-30T00:00:00Z',
  '2027-02-29T00:00:00Z',
  '2026-13-01T00:00:00Z',
  '2026-00-01T00:00:00Z',
  '2026-12-00T00:00:00Z',
  '2026-12-31T23:60:00Z',
  '2026-12-31T23:59:59+24:00',
  '2026-12-31T23:59:59+00:60',
  '2026-12-31T23:59:59',
  '2026-12-31 23:59:59Z',
  '2026-12-31T23:59:59Z[UTC]',
  // In UTC these are in the year 10000, and in the year before the first one.
  '9999-12-31T23:59:59-23:59',
  '0000-01-01T00:00:00+23:59',
  '+002026-12-31T23:59:59Z',
  'NaN',
  '',
];

describe('a time', () => {
  test('is what a calendar and a clock can show, and nothing that Date.parse makes something else of', () => {
    for (const text of NO_TIMES) assert.equal(isTime(text), false, text);
    const times = ['2028-02-29T00:00:00Z', '2026-12-31t23:59:59.123456789z', '0000-01-01T00:00:00Z'];
    for (const text of [...times, '2026-01-01T00:30:00+01:00']) assert.equal(isTime(text), true, text);
  });

  test('that is answered is always taken', () => {
    const moments = fc.date({
      min: new Date('0000-01-01T00:00:00Z'),
      max: new Date('9999-12-31T23:59:59.999Z'),
      noInvalidDate: true,
    });
    fc.assert(fc.property(moments, (moment) => isTime(moment.toISOString())));
  });
});

interface Node {
  format?: string;
  properties?: Record<string, Node>;
}

interface Operation {
  parameters?: { name: string; in: string; schema: Node }[];
  requestBody?: { content: Record<string, { schema: Node & { $ref?: string }; example?: object }> };
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas?: Record<string, Node> };
}

/** All fields of the API that take a time. */
function placesIn({ paths, components }: Document): { method: string; path: string; query: boolean; field: string }[] {
  return Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).flatMap(([method, { parameters = [], requestBody }]) => {
      const given = requestBody?.content['application/json']?.schema;
      const name = given?.$ref?.split('/').at(-1);
      const schema = name === undefined ? given : components.schemas?.[name];
      const in_body = Object.entries(schema?.properties ?? {}).filter(([, { format }]) => format === 'date-time');
      const in_query = parameters.filter(({ schema }) => schema.format === 'date-time');
      return [
        ...in_body.map(([field]) => ({ method, path, query: false, field })),
        ...in_query.map(({ name }) => ({ method, path, query: true, field: name })),
      ];
    }),
  );
}

for (const engine of ['SQLite', 'PostgreSQL'] as const) {
  const settings = async () => (engine === 'SQLite' ? {} : { database_url: await makeDatabase() });

  test(`every route that takes a time refuses what is none, by the name of the field (${engine})`, async (t: TestContext) => {
    const service = await startService(t, await settings());
    await service.endOpenMode();
    const { instance_id } = await service.register({ webhook_url: 'http://127.0.0.1:1/' });
    const { body: document } = await service.get<Document>('/openapi.json');
    const places = placesIn(document);
    assert.deepEqual([...new Set(places.map(({ field }) => field))].toSorted(), ['expires_at', 'since', 'until']);
    for (const { method, path, query, field } of places) {
      const here = path.replace('{instance_id}', instance_id);
      for (const text of NO_TIMES) {
        const others = field === 'expires_at' ? { scopes: ['read'] } : {};
        const answer = query
          ? await service.get<never>(`${here}?${field}=${encodeURIComponent(text)}`)
          : await service.request(method.toUpperCase(), here, { body: { ...others, [field]: text } });
        const { errors } = assertProblem(answer, 422, 'invalid_fields');
        assert.deepEqual(
          errors?.map((error) => error.path),
          [field],
          `${here} ${text}`,
        );
      }
    }
    const { data } = (await service.get<{ data: ApiKey[] }>('/api/v1/keys/')).body;
    assert.equal(data.length, 1);
    // The controls: the same fields accept times.
    const key = await service.createKey({ scopes: ['read'], expires_at: '9999-12-31T23:59:59.999Z' });
    assert.equal(key.expires_at, '9999-12-31T23:59:59.999Z');
    assert.equal(
      (await service.get('/api/v1/audit/?since=0000-01-01T00:00:00Z&until=2026-01-01T00:00:00Z')).status,
      200,
    );
  });
}
