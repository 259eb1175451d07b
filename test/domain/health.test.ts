import assert from 'node:assert/strict';
import { test } from 'node:test';
import { healthAfter } from '../../src/domain/delivery.ts';
import { healthOf, type InstanceHealth, NO_HEALTH } from '../../src/domain/instance.ts';

test('the time since when a machine has its health is that of the change: no other failure or success moves it', () => {
  let health: InstanceHealth = NO_HEALTH;
  const seen = ([200, 200, 500, 500, 500, 500, 500, 500, 200, 200] as const).map((status_code, wall_ms) => {
    const outcome = status_code === 200 ? 'ok' : 'bad_status';
    health = healthAfter(health, { outcome, status_code, detail: '' }, wall_ms, wall_ms, 0);
    return `${healthOf(health)} since ${health.health_since}`;
  });
  const failing = Array.from({ length: 4 }, () => 'failing since 2');
  const expected = ['up since 0', 'up since 0', ...failing, 'down since 6', 'down since 6', 'up since 8', 'up since 8'];
  assert.deepEqual(seen, expected);
});
