/**
 * Every operation, with random inputs from its schema in the OpenAPI document of the running service. FUZZ_RUNS is the
 * number of inputs for each operation and property, FUZZ_SEED the seed. A failure prints how to repeat it.
 */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import fc from 'fast-check';
import {
  type Input,
  invalidInput,
  type Operation,
  operationsOf,
  type Place,
  validInput,
} from '../support/operations.ts';
import { type Answer, useService } from '../support/service.ts';

const RUNS = Number(process.env['FUZZ_RUNS'] ?? 40);
const SEED = Number(process.env['FUZZ_SEED'] ?? 20_260_301);

/** Statuses that a valid input may get, because its object does not exist or is in another state. */
const OF_THE_STATE = [404, 409];
/** The code that a valid input with a random link gets: only links that the service made are valid. */
const OF_LINKS = ['sign_in_link_not_valid'];
/** A route that reads no body without the token of a push. test/delivery/late_replies.test.ts tests it with tokens. */
const REPLIES = '/api/v1/replies/';
const DROP = '/api/v1/deliveries/drop/';
const DELIVERIES = '/api/v1/deliveries/';
const RECOVER = '/api/v1/instances/{instance_id}/recover/';

/** Headers that the document does not list, because HTTP defines them. */
const OF_HTTP = new Set([
  'content-type',
  'content-length',
  'transfer-encoding',
  'connection',
  'keep-alive',
  'date',
  // Every response has these, for browsers.
  'x-content-type-options',
  'cache-control',
]);

describe('every operation:', () => {
  // The test sends more invalid links than the service allows.
  const service = useService({ auth_failure_rate: '0' });
  let operations: Operation[] = [];

  before(async () => {
    // Ends open mode now: otherwise a call of the test could make the first key.
    await service.endOpenMode();
    const { body } = await service.get<Parameters<typeof operationsOf>[0]>('/openapi.json');
    operations = operationsOf(body).filter(({ path }) => path !== REPLIES);
  });

  async function call({ method, path, body }: Operation, input: Input): Promise<Answer<unknown>> {
    const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(input.path[name])));
    const query = Object.entries(input.query).flatMap(([name, value]) =>
      [value].flat().map((each) => `${name}=${encodeURIComponent(String(each))}`),
    );
    const headers = Object.fromEntries(Object.entries(input.header).map(([name, value]) => [name, String(value)]));
    const to = query.length === 0 ? filled : `${filled}?${query.join('&')}`;
    return service.request(method, to, body === null ? { headers } : { body: input.body, headers });
  }

  /** Asserts that the document has this status, describes its body, and lists each of its headers. */
  function assertDescribed({ method, path, answers, headers }: Operation, answer: Answer<unknown>): void {
    const said = `${method} ${path}: ${answer.status} ${answer.text}`;
    assert.ok(answer.status < 500, said);
    const schema = answers.get(answer.status);
    assert.ok(schema !== undefined, `not in the document: ${said}`);
    const known = headers.get(answer.status) ?? [];
    const unknown = Object.keys(answer.headers).filter((name) => !OF_HTTP.has(name) && !known.includes(name));
    assert.deepEqual(unknown, [], said);
    if (schema === null) assert.equal(answer.text, '', said);
    else assert.ok(schema.Check(answer.body), `${said}: ${JSON.stringify(schema.Errors(answer.body))}`);
  }

  async function check<T>(arbitrary: fc.Arbitrary<T>, holds: (value: T) => Promise<void>): Promise<void> {
    await fc.assert(fc.asyncProperty(arbitrary, holds), { numRuns: RUNS, seed: SEED, endOnFailure: RUNS <= 40 });
  }

  test('takes what its schema allows, and answers as the document says', async () => {
    assert.ok(operations.length >= 18);
    for (const operation of operations) {
      await check(validInput(operation), async (input) => {
        // The route needs an instance_id or a meeting_id, and its schema cannot say so.
        if (operation.path === DROP) fc.pre('instance_id' in input.body || 'meeting_id' in input.body);
        // A seq counts the messages of one meeting, so it needs a meeting_id. The schema cannot say so.
        const has_seq = 'after_seq' in input.query || 'before_seq' in input.query;
        if (operation.path === DELIVERIES) fc.pre(!has_seq || 'meeting_id' in input.query);
        if (operation.path === RECOVER) fc.pre(namesOneKind(input.body));
        const answer = await call(operation, input);
        assertDescribed(operation, answer);
        const is_of_links = OF_LINKS.includes((answer.body as { code?: string } | undefined)?.code ?? '');
        const is_taken = answer.status < 300 || OF_THE_STATE.includes(answer.status) || is_of_links;
        assert.ok(is_taken, `${operation.method} ${operation.path}: ${answer.text}`);
      });
    }
  });

  test('refuses a field that its schema forbids, and names it', async () => {
    for (const operation of operations) {
      const arbitrary = invalidInput(operation);
      if (arbitrary === null) continue;
      await check(arbitrary, async ({ input, name }) => {
        const answer = await call(operation, input);
        assertDescribed(operation, answer);
        assertNames(answer, name);
      });
    }
  });

  test('refuses a field that it does not know, and one that is missing, by their names', async () => {
    for (const operation of operations.filter(({ path }) => path.startsWith('/api/'))) {
      const places: Place[] = operation.body === null ? ['query'] : ['query', 'body'];
      const unknown = fc.tuple(validInput(operation), fc.constantFrom(...places), fc.stringMatching(/^[a-z]{12}$/));
      await check(unknown, async ([input, place, name]) => {
        const answer = await call(operation, { ...input, [place]: { ...input[place], [name]: 'x' } });
        assertDescribed(operation, answer);
        assertNames(answer, name);
      });
      const required = operation.body?.required ?? [];
      if (required.length === 0) continue;
      await check(fc.tuple(validInput(operation), fc.constantFrom(...required)), async ([input, name]) => {
        const { [name]: _, ...body } = input.body;
        const answer = await call(operation, { ...input, body });
        assertDescribed(operation, answer);
        assertNames(answer, name);
      });
    }
  });

  test('control: what the document does not say, and a field that is not named, are found', () => {
    const [operation] = operations;
    assert.ok(operation !== undefined);
    const answer = { status: 299, headers: {}, text: '{}', body: {} };
    assert.throws(() => assertDescribed(operation, answer), /not in the document/);
    assert.throws(() => assertDescribed(operation, { ...answer, status: 500 }));
    assert.throws(() => assertDescribed(operation, { ...answer, status: 201 }));
    assert.throws(() => assertDescribed(operation, { ...answer, status: 201, headers: { etag: '"a"' } }), /etag/);
    assert.throws(() =>
      assertNames({ ...answer, status: 422, body: { errors: [{ path: 'other', message: '' }] } }, 'one'),
    );
  });

  test('nothing of this was a defect', () => {
    assert.deepEqual(
      service.log.filter(({ level }) => Number(level) >= 50),
      [],
    );
  });
});

/** A recovery needs a time or deliveries, but not both. Its schema cannot say so. */
function namesOneKind(body: { since?: string; until?: string; delivery_ids?: string[] }): boolean {
  const { since, until, delivery_ids } = body;
  if (since === undefined) return delivery_ids !== undefined && until === undefined;
  return delivery_ids === undefined && (until === undefined || Date.parse(until) >= Date.parse(since));
}

function assertNames({ status, text, body }: Answer<unknown>, name: string): void {
  assert.equal(status, 422, text);
  const paths = (body as { errors?: { path: string }[] }).errors?.map(({ path }) => path) ?? [];
  assert.ok(
    paths.some((path) => path === name || path.startsWith(`${name}.`)),
    `${name} is not named: ${text}`,
  );
}
