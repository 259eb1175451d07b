/**
 * When a delivery expires in a cluster: one node writes it and another judges it, so the nodes share a clock. A node
 * whose steady clock is wrong follows the wall clock and the database when these two agree.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Expiry } from '../../src/delivery/expiry.ts';
import { HOUR, MINUTE, SECOND } from '../support/node.ts';
import { VIRTUAL_START, VirtualClock } from '../support/virtual_clock.ts';

const EXPIRE_AFTER_MS = 72 * HOUR;
const DAY = 24 * HOUR;

/** A node whose wall clock is ahead of its steady clock, and of which a renewal tells the time of the database. */
function nodeWith({ wall_ahead_ms }: { wall_ahead_ms: number }) {
  const clock = new VirtualClock();
  const corrected: number[] = [];
  const doubted: number[] = [];
  const expiry = new Expiry(clock, EXPIRE_AFTER_MS, {
    corrected: (behind_ms) => corrected.push(behind_ms),
    doubted: (behind_ms) => doubted.push(behind_ms),
  });
  clock.stepWall(wall_ahead_ms);
  const renews = (database_ahead_ms: number): void => expiry.compare(clock.now() + database_ahead_ms, clock.now());
  return { clock, expiry, corrected, doubted, renews };
}

/** How far the time by which a node writes and judges is ahead of its steady clock. */
const aheadOf = (expiry: Expiry): number => expiry.endOfNew(0) - VIRTUAL_START;

test('a node that is behind its wall clock and the database writes and judges by their time', () => {
  const { clock, expiry, corrected, renews } = nodeWith({ wall_ahead_ms: 2 * MINUTE });
  const written_before = { message_id: 'm', expires_at: expiry.endOfNew(MINUTE) };
  renews(2 * MINUTE);
  assert.equal(aheadOf(expiry), 2 * MINUTE);
  assert.equal(expiry.hasExpired(written_before, clock.now()), true);
  const written = { message_id: 'm', expires_at: expiry.endOfNew(MINUTE) };
  assert.equal(written.expires_at, clock.wall() + MINUTE);
  // The timer of a lane runs on the steady clock.
  assert.equal(expiry.endOf(written, clock.now()), clock.now() + MINUTE);
  assert.equal(expiry.hasExpired(written, clock.now() + MINUTE - 1), false);
  assert.equal(expiry.hasExpired(written, clock.now() + MINUTE), true);
  assert.equal(expiry.note(clock.now()).ran_until, clock.wall());
  assert.deepEqual(corrected, [2 * MINUTE]);
});

test('a node that is ahead of both goes back to their time, however far', () => {
  const { expiry, corrected, renews } = nodeWith({ wall_ahead_ms: -4 * DAY });
  renews(-4 * DAY);
  assert.equal(aheadOf(expiry), -4 * DAY);
  assert.deepEqual(corrected, [-4 * DAY]);
});

test('one wrong clock alone changes nothing, be it the wall clock or that of the database', () => {
  for (const [wall_ahead_ms, database_ahead_ms] of [
    [HOUR, 0],
    [-HOUR, 0],
    [0, HOUR],
    [0, -HOUR],
    [HOUR, -HOUR],
    [HOUR, HOUR + 2 * SECOND],
  ] as const) {
    const { expiry, corrected, renews } = nodeWith({ wall_ahead_ms });
    renews(database_ahead_ms);
    assert.equal(aheadOf(expiry), 0, `${wall_ahead_ms} ${database_ahead_ms}`);
    assert.deepEqual(corrected, []);
  }
});

test('two clocks agree within a second and the time in which the database was asked', async () => {
  const { clock, expiry } = nodeWith({ wall_ahead_ms: SECOND });
  expiry.compare(clock.now() + SECOND, clock.now());
  assert.equal(aheadOf(expiry), 0, 'a second is no difference');
  clock.stepWall(MINUTE);
  const asked_at = clock.now();
  await clock.advance(10 * SECOND);
  // In the middle of these ten seconds the database and the wall clock were 9 s apart.
  expiry.compare(asked_at + 5 * SECOND + MINUTE - 8 * SECOND, asked_at);
  assert.equal(expiry.endOfNew(0), clock.wall());
  clock.stepWall(10 * SECOND);
  expiry.compare(asked_at + 5 * SECOND + MINUTE + 11 * SECOND, asked_at);
  assert.equal(expiry.endOfNew(0), clock.wall() - 10 * SECOND, 'the difference is within the time of the question');
});

test('what a node accepts after a suspend, before it asks the database, does not expire early', () => {
  const { clock, expiry, renews } = nodeWith({ wall_ahead_ms: 0 });
  renews(0);
  clock.stepWall(2 * MINUTE);
  assert.equal(expiry.endOfNew(MINUTE), clock.wall() + MINUTE);
  renews(0);
  assert.equal(expiry.endOfNew(MINUTE), clock.now() + MINUTE, 'the database says that only the wall clock was set');
  clock.stepWall(-HOUR);
  assert.equal(expiry.endOfNew(MINUTE), clock.now() + MINUTE);
});

test('a jump ahead that a start would not believe is reported once, and not followed', () => {
  const { clock, expiry, corrected, doubted, renews } = nodeWith({ wall_ahead_ms: 4 * DAY });
  renews(4 * DAY);
  renews(4 * DAY);
  assert.equal(aheadOf(expiry), 0);
  assert.deepEqual(doubted, [4 * DAY]);
  clock.stepWall(-4 * DAY);
  renews(0);
  clock.stepWall(DAY);
  renews(DAY);
  assert.deepEqual(corrected, [DAY]);
});

test('a jump that a start held is no longer held when the clock turns out to have been wrong', () => {
  const { clock, expiry, renews } = nodeWith({ wall_ahead_ms: 0 });
  expiry.begin({ ran_until: clock.now() - 4 * DAY, held_ms: 0, held_since: 0, held_up_to: null }, false, 'm5');
  const pending = { message_id: 'm1', expires_at: clock.now() - 4 * DAY + HOUR };
  assert.equal(expiry.heldAt(clock.now()), 4 * DAY);
  assert.equal(expiry.endOf(pending, clock.now()), clock.now() + HOUR);
  clock.stepWall(-4 * DAY);
  renews(-4 * DAY);
  assert.equal(expiry.heldAt(clock.now()), 0);
  assert.equal(expiry.endOf(pending, clock.now()), clock.now() + HOUR);
});

test('of a held jump only the part stays that the clock was not wrong by', () => {
  const { clock, expiry, renews } = nodeWith({ wall_ahead_ms: 0 });
  expiry.begin({ ran_until: clock.now() - 4 * DAY, held_ms: 0, held_since: 0, held_up_to: null }, false, 'm5');
  clock.stepWall(-DAY);
  renews(-DAY);
  assert.equal(expiry.heldAt(clock.now()), 3 * DAY);
  assert.equal(expiry.heldAt(clock.now() + EXPIRE_AFTER_MS - 1), 3 * DAY);
  assert.equal(expiry.heldAt(clock.now() + EXPIRE_AFTER_MS), 0);
});

test('without a cluster the steady clock decides, wherever the wall clock is set', () => {
  const { clock, expiry } = nodeWith({ wall_ahead_ms: DAY });
  assert.equal(expiry.endOfNew(), clock.now() + EXPIRE_AFTER_MS);
  assert.equal(expiry.endOfNew(EXPIRE_AFTER_MS + 1), clock.now() + EXPIRE_AFTER_MS);
});
