import assert from 'node:assert/strict';
import { test } from 'node:test';
import { healthAfter } from '../../src/domain/delivery.ts';
import { FAILURE_EXCERPT_CHARS_MAX, healthOf, type InstanceHealth, NO_HEALTH } from '../../src/domain/instance.ts';

test('the time since when a machine has its health is that of the change: no other failure or success moves it', () => {
  let health: InstanceHealth = NO_HEALTH;
  const seen = ([200, 200, 500, 500, 500, 500, 500, 500, 200, 200] as const).map((status_code, wall_ms) => {
    const outcome = status_code === 200 ? 'ok' : 'bad_status';
    health = healthAfter(health, { outcome, status_code, detail: '', response_excerpt: '' }, wall_ms, wall_ms, 0);
    return `${healthOf(health)} since ${health.health_since}`;
  });
  const failing = Array.from({ length: 4 }, () => 'failing since 2');
  const expected = ['up since 0', 'up since 0', ...failing, 'down since 6', 'down since 6', 'up since 8', 'up since 8'];
  assert.deepEqual(seen, expected);
});

test('the last failure keeps the beginning of its own response: never that of another failure, and no half of a pair', () => {
  const answered = (health: InstanceHealth, response_excerpt: string, status_code = 500): InstanceHealth => {
    const outcome = status_code === 200 ? 'ok' : 'bad_status';
    return healthAfter(health, { outcome, status_code, detail: '', response_excerpt }, 1, 1, 0);
  };
  const failing = answered(NO_HEALTH, 'out of GPU memory');
  assert.equal(failing.last_failure?.response_excerpt, 'out of GPU memory');
  assert.deepEqual(answered(failing, 'hello', 200).last_failure, failing.last_failure);
  assert.equal('response_excerpt' in answered(failing, '').last_failure!, false);
  const kept = (text: string) => answered(failing, text).last_failure?.response_excerpt;
  assert.equal(kept('é'.repeat(1_000)), 'é'.repeat(FAILURE_EXCERPT_CHARS_MAX));
  const before = 'x'.repeat(FAILURE_EXCERPT_CHARS_MAX - 1);
  assert.equal(kept(`${before}😀`), before);
});
