/** A command that a text names works as typed: on this machine, and whatever the ids in it are. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseArgs } from 'node:util';
import type { DeliveryWithAttempts } from '@convoke/sdk';
import { commandName, withTypedCommands } from '../../src/cli/program/command_name.ts';
import { adviceInWords } from '../../src/cli/program/format.ts';
import { lastArgument, quoted } from '../../src/cli/program/shell_words.ts';

test('an id that looks like an option, or has a space or a quote, is an argument all the same', () => {
  assert.deepEqual(['standup-42', '-1', '--meet', '- x', "o'neil", '$HOME'].map(lastArgument), [
    'standup-42',
    '-- -1',
    '-- --meet',
    "-- '- x'",
    "'o'\\''neil'",
    "'$HOME'",
  ]);
  assert.equal(quoted('/home/me/my clone/main.ts'), "'/home/me/my clone/main.ts'");
});

test('the advice about a delivery to an instance with such an id, in such a meeting', () => {
  const delivery = { delivery_id: 'dlv_1', instance_id: '-i', meeting_id: '--m', attempts: [], reason: null };
  for (const [state, id] of [
    [{ state: 'pending', waiting_for: 'paused' }, '--m'],
    [{ state: 'pending', waiting_for: 'switched_off' }, '-i'],
    [{ state: 'pending', waiting_for: 'back_off' }, '-i'],
    [{ state: 'cancelled', reason: 'hop_limit' }, '--m'],
    [{ state: 'cancelled', reason: 'max_age' }, '--m'],
  ] as const) {
    const advice = adviceInWords({ ...delivery, ...state } as object as DeliveryWithAttempts);
    const commands = advice.split(commandName()).map((text) => / ([a-z]+ [a-z]+ (?:-- )?\S+) /.exec(text)?.[1] ?? '');
    const words = commands.find((command) => command.includes(id))!.split(' ');
    assert.deepEqual(parseArgs({ args: words, allowPositionals: true }).positionals.slice(2), [id], advice);
  }
});

test('a text of the service or of the store has its commands as they are typed here', () => {
  assert.equal(
    withTypedCommands('is Convoke running (`convoke serve`)? `convoke keys reencrypt` and convoke'),
    `is Convoke running (\`${commandName()} serve\`)? \`${commandName()} keys reencrypt\` and convoke`,
  );
});
