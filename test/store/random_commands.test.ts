/**
 * SQLite and PostgreSQL return the same results for the same random commands. `npm test` runs a thousand commands;
 * CONTRACT_COMMANDS sets another number, and CONTRACT_SEED repeats a log.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test, type TestContext } from 'node:test';
import { NO_QUOTAS, type Quotas } from '../../src/store/contract/quotas.ts';
import type { Store } from '../../src/store/store.ts';
import { ENGINES } from '../support/engines.ts';
import { type Command, COMMAND_NAMES, CommandLog, commandLogs } from '../support/store_commands.ts';

const COMMANDS = Number(process.env['CONTRACT_COMMANDS'] ?? 1_000);
const SEED = Number(process.env['CONTRACT_SEED'] ?? 20_261_121);
const PER_LOG = 250;

const FEW: Quotas = {
  max_instances: 4,
  max_instances_per_key: 2,
  max_instances_per_meeting: 3,
  max_meetings_per_instance: 3,
};

/** Runs a log on new stores of both databases, and compares the results. */
async function assertSame(t: TestContext, log: Command[], quotas: Quotas, spoil?: (store: Store) => Store) {
  const [first, second] = await Promise.all(ENGINES.map((engine) => engine.open(t, quotas)));
  assert.ok(first !== undefined && second !== undefined);
  const logs = [new CommandLog(first), new CommandLog(spoil?.(second) ?? second)];
  const answered = new Set<string>();
  try {
    for (const [i, command] of log.entries()) {
      const [expected, answer] = await Promise.all(logs.map((each) => each.run(command)));
      assert.deepEqual(answer, expected, `command ${i} of the log, ${JSON.stringify(command)}`);
      if (!JSON.stringify(expected).startsWith('{"failed"')) answered.add(command[0]);
    }
  } finally {
    await Promise.all([first.close(), second.close()]);
  }
  return answered;
}

for (const [name, quotas] of [
  ['as many as one likes', NO_QUOTAS],
  ['few', FEW],
] as const) {
  test(`SQLite and PostgreSQL answer alike, when there may be ${name}`, async (t) => {
    const answered = new Set<string>();
    const property = fc.asyncProperty(commandLogs(PER_LOG), async (log) => {
      for (const command of await assertSame(t, log, quotas)) answered.add(command);
    });
    await fc.assert(property, { seed: SEED, numRuns: Math.ceil(COMMANDS / PER_LOG / 2), endOnFailure: true });
    assert.deepEqual([...answered].toSorted(), COMMAND_NAMES.toSorted(), 'every command was answered');
  });
}

test('control: an engine that answers otherwise is found', async (t) => {
  const [log] = fc.sample(commandLogs(PER_LOG), { seed: SEED, numRuns: 1 });
  const forgetful = (store: Store): Store => ({
    ...store,
    meetings: { ...store.meetings, join: (...args) => store.meetings.join(...args), leave: async () => null },
  });
  await assert.rejects(assertSame(t, log ?? [], NO_QUOTAS, forgetful), /command \d+ of the log/);
});
