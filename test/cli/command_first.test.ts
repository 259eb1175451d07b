/** Options may stand before the command of a group, and after it. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commandFirst } from '../../src/cli/program/command_first.ts';
import { program } from '../../src/cli/program/program.ts';
import { convoke } from '../support/command_line.ts';
import { startService } from '../support/service.ts';

const first = (line: string): string => commandFirst(program(), line.split(' ')).join(' ');

test('the command of a group moves before the options, and the value of an option is no command', () => {
  assert.equal(first('deliveries --url X drop --yes'), 'deliveries drop --url X --yes');
  assert.equal(first('deliveries --url=X drop'), 'deliveries drop --url=X');
  assert.equal(first('deliveries --json --text drop show dlv_1'), 'deliveries show --json --text drop dlv_1');
  assert.equal(first('keys --scope read --name show create'), 'keys create --scope read --name show');
  for (const line of [
    'deliveries',
    'deliveries drop --meeting list',
    'deliveries --text drop',
    'deliveries --url X',
    'deliveries --url X -- drop',
    'deliveries --url X shwo drop',
    'status --url drop',
    '--version',
  ])
    assert.equal(first(line), line);
});

test('in each group, an option with a value has one in every command', () => {
  for (const group of program().commands) {
    const takes_value = new Map<string, boolean>();
    for (const option of group.commands.flatMap((command) => command.options)) {
      const { long, required } = option;
      assert.equal(takes_value.get(long!) ?? required, required, `${group.name()} ${long}`);
      assert.equal(option.optional, false, `${group.name()} ${long}`);
      takes_value.set(long!, required);
    }
  }
});

test('a command whose options stand first does what it does otherwise', async (t) => {
  const service = await startService(t);
  const ended = await convoke(['deliveries', '--url', service.url, 'drop', '--meeting', 'm']);
  assert.deepEqual([ended.code, ended.stderr], [0, '']);
  assert.match(ended.stdout, /^would be dropped: 0 deliveries/);
});
