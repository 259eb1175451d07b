import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Candidate, explained } from '../../src/domain/explanation.ts';

const AT = 100_000;
const LIMITS = { hop_limit: 0, pair_limit: 1, pair_window_s: 60 };
const MEMBER: Candidate = {
  agent_ids: ['ben'],
  left_at: null,
  is_active: true,
  webhook_enabled: true,
  unconnected: false,
  backing_off: false,
  wake: 'all',
  catch_up: 'all',
  max_age_s: 0,
};

/** Explains a message of anna to ben. An earlier message of anna, which is `age_s` old, still waits. */
function explain(member: Partial<Candidate>, age_s = 10) {
  const waits = {
    from_agent: 'anna',
    target_agents: ['ben'],
    accepted_at: AT - age_s * 1_000,
    age_ms: age_s * 1_000,
    hops: 1,
    is_unjudged: true,
    may_be_left_out: true,
  };
  const message = { targets: null, from_agent: 'anna', hops: 1, accepted_at: AT };
  const { pushed, why, may_become } = explained({ ...MEMBER, ...member }, message, { paused: false, limits: LIMITS }, [
    waits,
  ]);
  return [pushed, why, ...may_become];
}

test('for the pair limit, explain leaves out what is too old by now, and says what else is possible', () => {
  assert.deepEqual(explain({}), ['no', 'pair_limit']);
  assert.deepEqual(explain({ max_age_s: 11 }), ['no', 'pair_limit', 'max_age', 'pushed']);
  assert.deepEqual(explain({ max_age_s: 9 }), ['now', null, 'max_age', 'pair_limit']);
});

test('with latest it leaves out all that waits for a machine that is away', () => {
  const latest = { catch_up: 'latest' } as const;
  assert.deepEqual(explain(latest), ['no', 'pair_limit', 'superseded', 'pushed']);
  assert.deepEqual(explain({ ...latest, unconnected: true }), ['later', 'connection', 'superseded', 'pair_limit']);
  assert.deepEqual(explain({ ...latest, backing_off: true }), ['later', 'back_off', 'superseded', 'pair_limit']);
});
