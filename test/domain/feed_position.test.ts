/** A position in the live feed, and which events it marks as sent. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FeedPosition } from '../../src/domain/feed_position.ts';

const START = Date.UTC(2030, 0, 1);
const attempt = (number: number, duration_ms: number) => ({
  delivery_id: `dlv_tag${String(number).padStart(11, '0')}`,
  attempt: 1,
  started_at: new Date(START).toISOString(),
  duration_ms,
});

test('what was sent before a stored position counts as sent after the position is read again', () => {
  for (const part_ms of [0, 0.4, 0.999]) {
    for (let later_ms = 0; later_ms <= 12; later_ms++) {
      const before = new FeedPosition(null, START);
      const published = attempt(1, 10 + part_ms);
      before.attempted(published);
      const { position } = FeedPosition.parse(before.textOf('memory', 1))!;
      assert.ok(position.wasPublished(published), `${part_ms} ms`);
      position.attempted(attempt(2, 10 + later_ms));
      assert.ok(position.wasPublished(published), `${part_ms} ms, and ${later_ms} ms later`);
      assert.ok(!position.wasPublished(attempt(3, 10 + later_ms)), 'what was not published does not count as told');
    }
  }
});
