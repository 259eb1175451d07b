/** The runtime `dify` with the other kinds of apps: see dify.test.ts. Each test starts a command. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { appAnswersOnce, startApp, talkWith } from './dify.ts';

for (const [mode, response_mode] of [
  ['chat', 'blocking'],
  ['advanced-chat', 'blocking'],
  ['chat', 'streaming'],
] as const)
  appAnswersOnce(mode, response_mode);

test('a streamed answer of a thousand words arrives whole, by webhook and by connect', async (t) => {
  const answer = 'word '.repeat(1_000).trim();
  const app = await startApp(t, { mode: 'agent-chat', answer: () => answer });
  const rows = await talkWith(app, 'streaming');
  assert.deepEqual(
    rows.map(({ reply }) => reply),
    [answer, answer],
  );
});
