/**
 * The two forms in which attempts are stored. Nearly every delivery has the short form. A reader must get the same from
 * both forms.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { attemptsText, fullAttemptsText } from '../../src/domain/attempts_text.ts';
import { type Attempt, type Outcome, OUTCOMES } from '../../src/domain/outcome.ts';
import { onDamagedValue, storedAttempts } from '../../src/store/rows/stored_values.ts';

const FIRST: Attempt = {
  attempt: 1,
  started_at: '2026-11-22T10:20:30.400Z',
  duration_ms: 3,
  outcome: 'ok',
  status_code: 200,
  detail: '',
  response_excerpt: '',
};

/** The years that a time writes with four digits. Other years have six digits and a sign. */
const FOUR_DIGITS = { min: new Date('0000-01-01T00:00:00.000Z'), max: new Date('9999-12-31T23:59:59.999Z') };

/** Draws mostly the usual value, so that most attempts are a first success or nearly one. */
const mostly = <T>(usual: T, other: fc.Arbitrary<T>): fc.Arbitrary<T> =>
  fc.oneof({ weight: 7, arbitrary: fc.constant(usual) }, { weight: 1, arbitrary: other });
const anAttempt: fc.Arbitrary<Attempt> = fc
  .record({
    attempt: mostly(1, fc.integer({ min: 1, max: 3 })),
    started_at: fc
      .oneof(fc.date({ noInvalidDate: true }), fc.date({ ...FOUR_DIGITS, noInvalidDate: true }))
      .map((date) => date.toISOString()),
    duration_ms: fc.double({ noNaN: true, noDefaultInfinity: true }).map((ms) => (ms === 0 ? 0 : ms)),
    outcome: mostly<Outcome>('ok', fc.constantFrom(...(Object.keys(OUTCOMES) as Outcome[]))),
    status_code: mostly<number | null>(200, fc.option(fc.integer({ min: 100, max: 599 }))),
    detail: mostly('', fc.string()),
    response_excerpt: mostly('', fc.string({ unit: 'binary' })),
    answered_agents: mostly<string[] | undefined>(undefined, fc.array(fc.string())),
  } satisfies Record<keyof Attempt, fc.Arbitrary<unknown>>)
  .map(({ answered_agents, ...attempt }) => (answered_agents ? { ...attempt, answered_agents } : attempt));

test('attempts are read as they were written, in the short form and in full', () => {
  onDamagedValue((damaged) => assert.fail(JSON.stringify(damaged)));
  let short = 0;
  fc.assert(
    fc.property(fc.array(anAttempt, { maxLength: 2 }), (attempts) => {
      const text = attemptsText(attempts);
      if (/^\[-?\d/.test(text)) short++;
      assert.deepEqual(
        storedAttempts(text, () => 'r'),
        attempts,
      );
      assert.deepEqual(JSON.parse(fullAttemptsText(text)), attempts);
    }),
    { seed: 20_261_123, numRuns: 2_000 },
  );
  assert.ok(short > 100, `${short} in the short form`);
});

test('a first attempt that succeeded takes 21 characters', () => {
  assert.equal(attemptsText([FIRST]), `[${Date.parse(FIRST.started_at)},3,200]`);
  assert.equal(attemptsText([FIRST]).length, 21);
  assert.equal(
    attemptsText([{ ...FIRST, response_excerpt: 'a "b"' }]),
    `[${Date.parse(FIRST.started_at)},3,200,"a \\"b\\""]`,
  );
});

test('an attempt of which the short form would not say everything is stored in full', () => {
  const others: Partial<Attempt>[] = [
    { attempt: 2 },
    { outcome: 'not_200' },
    { status_code: null },
    { detail: 'x' },
    { answered_agents: [] },
    { started_at: '2026-11-22T10:20:30.4004Z' },
    { started_at: '2026-11-22' },
  ];
  for (const changes of others) {
    const attempts = [{ ...FIRST, ...changes }];
    assert.equal(attemptsText(attempts), JSON.stringify(attempts));
    assert.equal(fullAttemptsText(attemptsText(attempts)), JSON.stringify(attempts));
  }
  assert.equal(attemptsText([FIRST, FIRST]), JSON.stringify([FIRST, FIRST]));
  assert.equal(attemptsText([]), '[]');
});

test('a damaged short form is reported, and read as no attempts', () => {
  const damaged = [
    '[1]',
    '[1,2]',
    '[1e300,3,200]',
    '[8640000000000001,3,200]',
    '[1,"3",200]',
    '[1,3,2.5]',
    '[1,3,200,7]',
    '[1,3,200,"",1]',
  ];
  const reported: string[] = [];
  onDamagedValue(({ row }) => reported.push(row));
  for (const text of damaged) {
    assert.deepEqual(
      storedAttempts(text, () => text),
      [],
    );
  }
  assert.deepEqual(reported, damaged);
});
