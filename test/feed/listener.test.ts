/** A listener of the live feed whose connection reads slowly. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FeedPosition } from '../../src/domain/feed_position.ts';
import type { FeedEvent } from '../../src/domain/feed_event.ts';
import { acceptedEvent } from '../../src/feed/events.ts';
import { FeedListener, type FeedSink } from '../../src/feed/listener.ts';
import { FeedMemory } from '../../src/feed/memory.ts';
import { FeedView } from '../../src/feed/view.ts';
import { VirtualClock } from '../support/virtual_clock.ts';

const accepted = (seq: number): FeedEvent => {
  const message = { message_id: `msg_${seq}`, meeting_id: 'm', seq, accepted_at: seq, target_agents: null };
  return acceptedEvent({ ...message, origin: null, deliveries_queued: 0 }, []);
};

test('an event that a replay has sent is not sent again, however slowly the connection reads', () => {
  const clock = new VirtualClock();
  const memory = new FeedMemory('name', new FeedPosition(null, 1));
  const viewer = { visibility: null, instance_id: undefined, meeting_id: undefined };
  const view = new FeedView(viewer, { store: {} as never, clock, onError: assert.ifError });
  const standing = { principal: { key_id: null }, revocationReason: () => null };
  const listener = new FeedListener({ memory, view, clock, standing });
  const written: string[] = [];
  let drained = (): void => {};
  const sink: FeedSink = {
    write: (bytes) => {
      written.push(bytes.toString());
      return written.length > 2;
    },
    end: () => assert.fail('it is not cut off'),
    destroy() {},
    onDrain: (callback) => (drained = callback),
    onClose() {},
  };
  listener.skip(new Set(['msg_1']), 10_000);
  memory.put(accepted(1));
  memory.put(accepted(2));
  // Two chunks, and the connection takes one at a time.
  listener.begin(sink, ['the replay'.padEnd(70_000), 'the gap']);
  for (const now of [10_000, 20_000]) {
    memory.put(accepted(now));
    listener.forgetSkipped(now);
    drained();
  }
  assert.equal(written.length, 3);
  const seqs = (text = ''): string[] => [...text.matchAll(/"seq":(\d+)/g)].map(([, seq]) => String(seq));
  assert.deepEqual(seqs(written[2]), ['2', '10000', '20000']);
  // Control: once the connection has taken these events, nothing is skipped any more.
  listener.forgetSkipped(30_000);
  memory.put(accepted(1));
  listener.serve();
  assert.deepEqual(seqs(written[3]), ['1']);
});
