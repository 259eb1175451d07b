/** Forty agents that answer everybody, so that each message causes thirty-nine more: the loop guard stops them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MINUTE, SECOND } from '../support/node.ts';
import { crowd, talk } from '../support/talk.ts';

const FORTY = crowd(40);
const SAID_MAX = 4_000;
const GUARD = { hop_limit: 0, pair_limit: 1, pair_window_s: 60 };

test('forty that answer everybody stop by themselves, within the limit of each pair', async (t) => {
  const world = await talk(t, FORTY, { ...GUARD, said_max: SAID_MAX });
  await world.node.send('m', { target_agents: ['a0'] });
  await world.node.clock.advance(30 * SECOND);
  for (const [pair, count] of world.received) assert.ok(count <= GUARD.pair_limit, `${pair}: ${count}`);
  assert.ok(world.said() < SAID_MAX, String(world.said()));
  const person = await world.node.send('m');
  await world.node.clock.advance(SECOND);
  assert.deepEqual(new Set(await world.node.states({ message_id: person.message_id })), new Set(['delivered']));
});

test('without the guard they do not stop; control', async (t) => {
  const off = { hop_limit: 0, pair_limit: 0, pair_window_s: 0 };
  const world = await talk(t, FORTY, { ...off, said_max: SAID_MAX });
  await world.node.send('m', { target_agents: ['a0'] });
  await world.node.clock.advance(2 * MINUTE);
  assert.ok(world.said() >= SAID_MAX, String(world.said()));
});
