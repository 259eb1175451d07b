/** The checker of the fault tests finds what it is there to find. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { check, type Findings, type Heard, type Record } from './checker.ts';

/** Three messages to two machines; the process ends at 1,000, right after the third was heard, and another starts. */
function clean(): Record {
  const numbers = [1, 2, 3];
  return {
    sent: numbers.map((number) => ({
      number,
      meeting_id: 'm',
      told: 'ok' as const,
      message_id: `msg-${number}`,
      seq: number,
    })),
    heard: numbers.flatMap((number) => ['a', 'b'].map((instance_id) => push(number, instance_id, 900 + number * 30))),
    stored: numbers.map((number) => ({ meeting_id: 'm', message_id: `msg-${number}`, seq: number, number })),
    members: new Map([['m', ['a', 'b']]]),
    deliveries: { delivered: 6 },
    lives: [
      { from_ms: 0, to_ms: 1_000 },
      { from_ms: 1_100, to_ms: 2_000 },
    ],
    in_flight_ms: 50,
  };
}

function push(number: number, instance_id: string, at_ms: number): Heard {
  const webhook_id = `dlv-${number}-${instance_id}`;
  const message_id = `msg-${number}`;
  return { at_ms, instance_id, meeting_id: 'm', webhook_id, message_id, seq: number, attempt: 1, number };
}

/** What is found, and nothing else. */
function assertFinds(kinds: (keyof Findings)[], doctor: (record: Record) => void): void {
  const record = clean();
  doctor(record);
  const { findings } = check(record);
  const found = Object.entries(findings).filter(([, texts]) => texts.length > 0);
  assert.deepEqual(
    found.map(([kind]) => kind),
    kinds,
    JSON.stringify(findings),
  );
}

const told = (record: Record, number: number, what: 'failed' | 'unknown'): void => {
  Object.assign(record.sent[number - 1] as object, { told: what, message_id: null, seq: null });
};

describe('the checker', () => {
  test('finds nothing where nothing is wrong', () => assertFinds([], () => {}));

  test('finds a push that one machine never heard', () => assertFinds(['lost'], ({ heard }) => void heard.pop()));

  test('finds an accepted message that is gone with all its deliveries', () =>
    assertFinds(['lost'], (record) => {
      record.heard = record.heard.filter(({ number }) => number !== 3);
      record.stored.pop();
      record.deliveries = { delivered: 4 };
    }));

  test('finds a refused message that was heard all the same', () =>
    assertFinds(['half'], (record) => told(record, 3, 'failed')));

  test('allows a message of unknown fate that everybody heard, and one that nobody did', () => {
    assertFinds([], (record) => told(record, 3, 'unknown'));
    assertFinds([], (record) => {
      told(record, 3, 'unknown');
      record.heard = record.heard.filter(({ number }) => number !== 3);
      record.stored.pop();
      record.deliveries = { delivered: 4 };
    });
  });

  test('finds a message of unknown fate that only some heard', () =>
    assertFinds(['half'], (record) => {
      told(record, 3, 'unknown');
      record.heard.pop();
    }));

  test('finds a push to an instance that is not in the meeting', () =>
    assertFinds(['misdirected'], ({ heard }) => void heard.push(push(1, 'c', 950))));

  test('finds one send that was stored twice', () =>
    assertFinds(['doubled', 'books'], ({ stored }) =>
      stored.push({ meeting_id: 'm', message_id: 'msg-4', seq: 4, number: 3 }),
    ));

  test('finds two first attempts of a lane that changed places', () =>
    assertFinds(['disordered'], ({ heard }) => {
      const [one, , two] = heard as [Heard, Heard, Heard];
      [one.at_ms, two.at_ms] = [two.at_ms, one.at_ms];
    }));

  test('allows what was in flight when the process ended to arrive again, and counts it', () => {
    assertFinds([], ({ heard }) => void heard.push(push(3, 'a', 1_200)));
    const record = clean();
    record.heard.push(push(3, 'a', 1_200));
    const { again, again_per_end_max, again_age_ms_max } = check(record).figures;
    assert.deepEqual([again, again_per_end_max, again_age_ms_max], [1, 1, 10]);
  });

  test('finds what came again though it was over long before the process ended', () =>
    assertFinds(['repeated'], ({ heard }) => void heard.push(push(1, 'a', 1_200))));

  test('finds what one process sent twice', () =>
    assertFinds(['repeated'], ({ heard }) => void heard.push(push(3, 'a', 995))));

  test('allows nothing to come again after a stop in good order', () =>
    assertFinds(['repeated'], (record) => {
      record.in_flight_ms = 0;
      record.heard.push(push(3, 'a', 1_200));
    }));

  test('finds books that do not balance, and deliveries that are still pending', () => {
    assertFinds(['books'], ({ deliveries }) => void (deliveries['delivered'] = 5));
    assertFinds(['books'], (record) => void (record.deliveries = { delivered: 5, pending: 1 }));
  });
});
