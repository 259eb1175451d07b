/** The demo in the service: its two agents are on normal instances, and nothing of the demo remains afterwards. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConvokeClient, type Demo } from '@convoke/sdk';
import { stateInWords } from '../../src/cli/program/format.ts';
import { systemClock } from '../../src/delivery/clock.ts';
import { Conversation } from '../../src/demo/conversation.ts';
import { TURNS } from '../../src/demo/script.ts';
import { partitionOf } from '../../src/domain/partition.ts';
import { blockOf, blocksOf } from '../support/documents.ts';
import { assertProblem, type Service, startService } from '../support/service.ts';
import { until } from '../support/wait.ts';

const DEMO = '/api/v1/demo/';
/** The limit of hops of the service. */
const HOPS = 16;

const clientOf = ({ url, token }: Service): ConvokeClient =>
  new ConvokeClient({ base_url: url, ...(token !== null && { api_key: token }) });

test('it talks a turn a second, answers a person, and leaves nothing registered', async (t) => {
  const service = await startService(t);
  const { key_id } = await service.endOpenMode();
  const client = clientOf(service);
  assert.deepEqual(await client.demo(), { state: 'stopped', meeting_id: null, instance_ids: [], turns: 0 });

  const begun_at = performance.now();
  const started = await service.post<Demo>(DEMO);
  assert.equal(started.status, 201, started.text);
  const { state, meeting_id, instance_ids } = started.body;
  assert.equal(state, 'talking');
  assert.match(meeting_id ?? '', /^demo-[0-9a-f]{6}$/);
  assert.equal(instance_ids.length, 2);
  const again = await service.post<Demo>(DEMO);
  assert.deepEqual([again.status, again.body.meeting_id], [200, meeting_id], 'there is one of it');

  const { turns } = await until(
    'the second turn',
    () => client.demo(),
    (demo) => demo.turns >= 2,
  );
  // The test has no upper limit for the time, because a busy machine is slow.
  assert.ok(performance.now() - begun_at > 1_900, 'slow enough to be watched');
  assert.ok(turns < TURNS.length, `${turns} turns`);

  await client.sendMessage(meeting_id ?? '', { from: 'anna', content: 'Is anybody there?' });
  const answer = await until(
    'an answer',
    async () => (await client.listMessages(meeting_id ?? '')).data.map(({ message }) => message as { content: string }),
    (messages) => messages.some(({ content }) => content.includes('I heard “Is anybody there?”')),
  );
  assert.equal(answer.filter(({ content }) => content.includes('I heard')).length, 1, 'one of them answers');

  await client.stopDemo();
  await client.stopDemo();
  assert.deepEqual((await client.listInstances()).data, []);
  assert.equal((await client.demo()).state, 'stopped');
  const { data: entries } = await client.listAudit({ order: 'oldest', limit: 500 });
  const of_demo = entries.filter(({ action }) => /^(demo|instance|meeting)\./.test(action));
  assert.deepEqual(
    of_demo.map(({ action }) => action),
    'instance.register meeting.join instance.register meeting.join demo.start instance.delete instance.delete demo.stop'.split(
      ' ',
    ),
  );
  assert.deepEqual([...new Set(of_demo.map(({ principal }) => principal))], [key_id]);
});

test('the loop guard stops its turns; one that is let through is answered, and stopped again; people are answered', async (t) => {
  const service = await startService(t);
  const client = clientOf(service);
  const failures: unknown[] = [];
  let pushes = 0;
  const conversation = new Conversation({
    service: client,
    observer: {
      joined() {},
      says() {},
      onPush: () => void pushes++,
      asked: () => void pushes++,
      failed: (error) => failures.push(error),
    },
    clock: systemClock(),
    turns: TURNS,
    pause_ms: 0,
    answers_max: 2,
  });
  t.after(() => conversation.end());
  await conversation.gather();
  await conversation.open('demo');
  const { meeting_id } = conversation;
  const stoppedTurns = async () =>
    (await client.listDeliveries({ meeting_id, state: 'cancelled' })).data.filter(
      ({ reason }) => reason === 'hop_limit',
    );
  const [stopped] = await until('a turn that is stopped', stoppedTurns, (deliveries) => deliveries.length === 1);
  assert.equal(conversation.turns, HOPS + 1);
  await client.retryDelivery(stopped!.delivery_id);
  await until('the next one', stoppedTurns, ([last]) => last !== undefined && last.seq > stopped!.seq);
  const turns = HOPS + 2;
  assert.equal(conversation.turns, turns);
  // Both agents get each of the three messages. Each agent also gets the answers of the other agent.
  for (const content of ['one', 'two', 'three']) await client.sendMessage(meeting_id, { from: 'anna', content });
  await until(
    'all pushes',
    () => pushes,
    (pushes) => pushes === 2 + (turns - 1) + 3 * 2 + 2,
  );
  const { data } = await client.listMessages(meeting_id, { after_seq: 0, limit: 100 });
  const said = data.map(({ message }) => message as { from: string; content: string });
  assert.deepEqual(
    said.slice(1, 1 + turns),
    TURNS.slice(0, turns).map((content, turn) => ({
      ...said[turn + 1],
      from: turn % 2 === 0 ? 'ada' : 'ben',
      content,
    })),
  );
  assert.equal(said.length, 1 + turns + 3 + 2);
  const answers = data.slice(1, 1 + turns);
  assert.deepEqual(
    answers.map(({ from_agent, in_reply_to, hops }) => [from_agent, in_reply_to, hops]),
    answers.map((_, turn) => [turn % 2 === 0 ? 'ada' : 'ben', data[turn]!.message_id, turn + 1]),
  );
  assert.match(said.findLast(({ from }) => from !== 'anna')?.content ?? '', /This was my last answer/);
  assert.deepEqual(failures, []);
});

test('the README shows what they say', async (t) => {
  const service = await startService(t);
  const client = clientOf(service);
  const conversation = new Conversation({
    service: client,
    observer: { joined() {}, says() {}, onPush() {}, asked() {}, failed() {} },
    clock: systemClock(),
    turns: TURNS,
    pause_ms: 0,
    answers_max: 2,
  });
  t.after(() => conversation.end());
  await conversation.gather();
  await conversation.open('demo');
  const { meeting_id } = conversation;
  const [stopped] = await until(
    'a turn that is stopped',
    async () => (await client.listDeliveries({ meeting_id, state: 'cancelled' })).data,
    (deliveries) => deliveries.length === 1,
  );
  await client.sendMessage(meeting_id, { from: 'you', content: 'Is anybody there?' }, { target_agents: ['ada'] });
  const { data } = await until(
    'an answer',
    () => client.listMessages(meeting_id, { after_seq: 0, limit: 100 }),
    (messages) => messages.data.length === HOPS + 4,
  );
  const said = data.flatMap(({ seq, message, in_reply_to }) => {
    const { from, content } = message as { from: string; content: string };
    const asked = data.find(({ message_id }) => message_id === in_reply_to)?.seq;
    const line = `#${seq} ${asked === undefined ? from : `${from}, to #${asked}`} ${content}`;
    const agents = stopped!.target_agents.join(', ');
    return seq === stopped!.seq ? [line, `push to ${agents} ${stateInWords(stopped!)}`] : [line];
  });
  const block = blockOf(await blocksOf('README.md'), 'the conversation of the demo');
  const shown = block.split('\n').map((line) => line.trim().replaceAll(/ {2,}/g, ' '));
  const left_out = shown.indexOf('…');
  const expected = [...said.slice(0, left_out), '…', ...said.slice(left_out - (shown.length - 1))];
  assert.deepEqual(shown, expected);
});

test('it ends with the service, and nothing of it is there after a restart', async (t) => {
  const service = await startService(t);
  const { status } = await service.post(DEMO);
  assert.equal(status, 201);
  await service.restart({});
  const client = clientOf(service);
  assert.deepEqual((await client.listInstances()).data, []);
  assert.equal((await client.demo()).state, 'stopped');
  const { data } = await client.listAudit({ action: 'instance.delete' });
  assert.deepEqual([...new Set(data.map(({ principal }) => principal))], ['service']);
});

test('where no push may reach this machine it is refused, and says what would allow it', async (t) => {
  const service = await startService(t, { egress: 'lan' });
  const { detail } = assertProblem(await service.post(DEMO), 409, 'demo_not_possible');
  assert.match(detail ?? '', /CONVOKE_EGRESS/);
  const { body } = await service.get<Demo>(DEMO);
  assert.equal(body.state, 'stopped');
});

test('when only one of the agents can join, neither stays', async (t) => {
  const service = await startService(t, { max_instances_per_key: '1' });
  await service.endOpenMode();
  assertProblem(await service.post(DEMO), 409, 'quota_exceeded');
  assert.deepEqual((await clientOf(service).listInstances()).data, []);
});

test('its agents have names that its own node delivers to: another machine would not reach them', async (t) => {
  const namesOn = async (delivers: (partition_no: number) => boolean): Promise<string[]> => {
    const nothing = async () => ({ seq: 1 });
    const conversation = new Conversation({
      service: { register: nothing, joinMeeting: nothing, sendMessage: nothing, deleteInstance: nothing },
      observer: { joined() {}, says() {}, onPush() {}, asked() {}, failed() {} },
      clock: systemClock(),
      turns: [],
      pause_ms: 0,
      answers_max: 0,
      isPushedFromHere: (instance_id) => delivers(partitionOf(instance_id)),
    });
    t.after(() => conversation.end());
    await conversation.gather();
    return conversation.instance_ids;
  };
  const only = await namesOn((partition_no) => partition_no === 63);
  assert.deepEqual(only.map(partitionOf), [63, 63]);
  const none = await namesOn(() => false);
  assert.ok(
    none.every((name) => /^demo-[0-9a-f]{6}-(ada|ben)$/.test(name)),
    'a node that holds nothing takes any name',
  );
});
