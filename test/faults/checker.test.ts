/** Tests that the checker of the fault tests finds each kind of fault. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { check, type Findings, type Arrival, type Record } from './checker.ts';

const FIRST = { sender: '127.1.0.1', url: 'http://first' };
const SECOND = { sender: '127.1.0.2', url: 'http://second' };
/** When the last accepted sends of the first process began, and when that process was killed. */
const STORED_MS = 2_600;
const KILLED_MS = 3_500;

/**
 * A run without faults: three messages to two machines, and thirty messages in a meeting without members. Then the
 * process ends, and another process starts.
 */
function clean(): Record {
  const numbers = Array.from({ length: 33 }, (_, i) => i + 1);
  const meetingOf = (number: number): string => (number <= 3 ? 'm' : 'nobody');
  const seqOf = (number: number): number => (number <= 3 ? number : number - 3);
  return {
    sent: numbers.map((number) => ({
      number,
      meeting_id: meetingOf(number),
      result: 'ok' as const,
      message_id: `msg-${number}`,
      seq: seqOf(number),
      accepted: { url: FIRST.url, from_ms: number <= 3 ? number * 1_000 : STORED_MS },
    })),
    received: [1, 2, 3].flatMap((number) => ['a', 'b'].map((instance_id) => push(number, instance_id, number * 1_000))),
    stored: numbers.map((number) => ({
      meeting_id: meetingOf(number),
      message_id: `msg-${number}`,
      seq: seqOf(number),
      number,
    })),
    members: new Map([['m', ['a', 'b']]]),
    deliveries: { delivered: 6 },
    endings: [{ ...FIRST, from_ms: KILLED_MS, to_ms: Infinity }],
  };
}

function push(number: number, instance_id: string, at_ms: number, { sender } = FIRST): Arrival {
  const webhook_id = `dlv-${number}-${instance_id}`;
  const message_id = `msg-${number}`;
  const answered_ms = at_ms;
  return {
    at_ms,
    answered_ms,
    sender,
    instance_id,
    meeting_id: 'm',
    webhook_id,
    message_id,
    seq: number,
    attempt: 1,
    number,
  };
}

/** Asserts that the checker finds these kinds of faults and no others. */
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

const setResult = (record: Record, number: number, what: 'failed' | 'unknown'): void => {
  Object.assign(record.sent[number - 1] as object, { result: what, message_id: null, seq: null });
};

describe('the checker', () => {
  test('finds nothing where nothing is wrong', () => assertFinds([], () => {}));

  test('finds a push that one machine never got', () => assertFinds(['lost'], ({ received }) => void received.pop()));

  test('finds an accepted message that is gone with all its deliveries', () =>
    assertFinds(['lost'], (record) => {
      record.received = record.received.filter(({ number }) => number !== 3);
      record.stored = record.stored.filter(({ number }) => number !== 3);
      record.deliveries = { delivered: 4 };
    }));

  test('finds a refused message that arrived all the same', () =>
    assertFinds(['half'], (record) => setResult(record, 3, 'failed')));

  test('allows a message of unknown fate that everybody got, and one that nobody got', () => {
    assertFinds([], (record) => setResult(record, 3, 'unknown'));
    assertFinds([], (record) => {
      setResult(record, 3, 'unknown');
      record.received = record.received.filter(({ number }) => number !== 3);
      record.stored = record.stored.filter(({ number }) => number !== 3);
      record.deliveries = { delivered: 4 };
    });
  });

  test('finds a message of unknown fate that only some got', () =>
    assertFinds(['half'], (record) => {
      setResult(record, 3, 'unknown');
      record.received.pop();
    }));

  test('finds a push to an instance that is not in the meeting', () =>
    assertFinds(['misdirected'], ({ received }) => void received.push(push(1, 'c', 1_500))));

  test('finds one send that was stored twice', () =>
    assertFinds(['doubled', 'books'], ({ stored }) =>
      stored.push({ meeting_id: 'm', message_id: 'msg-34', seq: 4, number: 3 }),
    ));

  test('finds two first attempts of a lane that changed places', () =>
    assertFinds(['disordered'], ({ received }) => {
      const [one, , two] = received as [Arrival, Arrival, Arrival];
      [one.at_ms, two.at_ms] = [two.at_ms, one.at_ms];
    }));

  test('allows what was in flight when the process ended to arrive again, and counts it', () => {
    assertFinds([], ({ received }) => void received.push(push(3, 'a', 4_000, SECOND)));
    const record = clean();
    record.received.push(push(2, 'a', 4_000, SECOND));
    const { again, again_per_end_max, again_age_ms_max } = check(record).figures;
    assert.deepEqual([again, again_per_end_max, again_age_ms_max], [1, 1, 600]);
  });

  test('finds a repeated push whose process accepted sends that began long after it', () =>
    assertFinds(['repeated'], ({ received }) => void received.push(push(1, 'a', 4_000, SECOND))));

  test('does not take the sends of a later process at the same URL for sends of the one that ended', () => {
    const later = (from_ms: number) => (record: Record) => {
      for (const each of record.sent) if (each.number > 3) each.accepted = { url: FIRST.url, from_ms };
      record.received.push(push(2, 'a', 4_000, SECOND));
    };
    assertFinds([], later(KILLED_MS + 1));
    assertFinds(['repeated'], later(KILLED_MS - 1));
  });

  test('allows the same where the process accepted none since: its disk stood still', () => {
    assertFinds([], ({ received, sent }) => {
      for (const each of sent) if (each.number > 20) each.accepted = null;
      received.push(push(1, 'a', 4_000, SECOND));
    });
    assertFinds([], ({ received, endings }) => {
      Object.assign(endings[0] as object, { from_ms: 1_500, to_ms: 2_000 });
      received.push(push(1, 'a', 4_000, SECOND));
    });
  });

  test('finds a repeated push of a process that did not end, and what one sent after it had to stop', () => {
    assertFinds(['repeated'], ({ received, endings }) => {
      Object.assign(endings[0] as object, { sender: SECOND.sender });
      received.push(push(3, 'a', 4_000, SECOND));
    });
    assertFinds(['repeated'], ({ received, endings }) => {
      Object.assign(endings[0] as object, { to_ms: 2_900 });
      received.push(push(3, 'a', 4_000, SECOND));
    });
  });

  test('finds what one process sent twice', () =>
    assertFinds(['repeated'], ({ received }) => void received.push(push(3, 'a', 3_100))));

  test('allows no repeated push after a stop in good order', () =>
    assertFinds(['repeated'], (record) => {
      record.endings = [];
      record.received.push(push(3, 'a', 4_000, SECOND));
    }));

  test('finds books that do not balance, and deliveries that are still pending', () => {
    assertFinds(['books'], ({ deliveries }) => void (deliveries['delivered'] = 5));
    assertFinds(['books'], (record) => void (record.deliveries = { delivered: 5, pending: 1 }));
  });
});
