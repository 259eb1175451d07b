import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useQuery } from '../queries.ts';
import { Choice } from '../parts/choice.tsx';
import { Snippet } from '../parts/copy.tsx';
import { Mark } from '../parts/mark.tsx';
import { doing } from '../parts/notice.tsx';
import { Page } from '../parts/page.tsx';
import { addressOf, go } from '../router.ts';
import { useObservable } from '../observable.ts';
import { client, may, session } from '../service.ts';
import { quoted } from '../format.ts';
import { Foreign } from '../parts/foreign.tsx';

interface Progress {
  instances: string[];
  joined: string | null;
  used_meeting: string | null;
  delivered: string | null;
}

async function progress(): Promise<Progress> {
  const [instances, meetings] = await Promise.all([
    client.listInstances({ limit: 20 }),
    may('read') ? inMeetings() : inDeliveries(),
  ]);
  return {
    instances: instances.data
      .filter(({ instance_id }) => !OF_DEMO.test(instance_id))
      .map(({ instance_name, instance_id }) => instance_name || instance_id)
      .slice(0, 3),
    ...meetings,
  };
}

type InMeetings = Omit<Progress, 'instances'>;

async function inMeetings(): Promise<InMeetings> {
  const meetings = await client.listMeetings({ limit: 100 });
  const own = meetings.data.filter(({ meeting_id }) => !OF_DEMO.test(meeting_id));
  const used_meeting = own.find(({ last_seq }) => last_seq > 0)?.meeting_id ?? null;
  const delivered =
    used_meeting === null
      ? null
      : await client.listDeliveries({ meeting_id: used_meeting, state: 'delivered', limit: 1 });
  return {
    joined: own.find(({ instance_count }) => instance_count > 0)?.meeting_id ?? null,
    used_meeting,
    delivered: delivered?.data[0]?.instance_id ?? null,
  };
}

/** For the owner of an instance, who sees its deliveries and no meetings. */
async function inDeliveries(): Promise<InMeetings> {
  const { data } = await client.listDeliveries({ limit: 20 });
  const used_meeting = data[0]?.meeting_id ?? null;
  const delivered = data.find(({ state }) => state === 'delivered')?.instance_id ?? null;
  return { joined: used_meeting, used_meeting, delivered };
}

/** The names of the demo's meetings and instances. Nothing that the demo did counts as a step of the guide. */
const OF_DEMO = /^demo-[0-9a-f]{6}(-|$)/;

/** How a machine takes part: it connects by itself, or it has a webhook and is registered with curl or the program. */
type Way = 'connect' | 'curl' | 'cli';

/** From an empty registry to a delivered message. Each step is ticked off when the service has seen it happen. */
export function Start(): JSX.Element {
  const [way, setWay] = useState<Way>('connect');
  const { value } = useQuery('progress', progress, () => true);
  const done = value ?? { instances: [], joined: null, used_meeting: null, delivered: null };
  const meeting_id = done.joined ?? 'standup-42';
  const needs_key = useObservable(session)?.state !== 'open';
  const commands = COMMANDS[way === 'curl' ? 'curl' : 'cli'](needs_key);
  const is_done = done.delivered !== null;
  return (
    <Page
      title="Start here"
      actions={
        <Choice
          label="How your machine takes part"
          options={[
            ['connect', 'It connects'],
            ['curl', 'Webhook: curl'],
            ['cli', 'Webhook: convoke'],
          ]}
          value={way}
          onChange={setWay}
        />
      }
    >
      <div class="guide" tabIndex={0} role="group" aria-label="Guide">
        {may('admin') && <DemoView />}
        {needs_key && (
          <section aria-label="Key">
            <p>
              This service needs a key: the commands take it from the terminal. It needs the scopes{' '}
              <code>instance</code> and <code>send</code>.{' '}
              {may('admin') ? <a href="/keys?new">Make one</a> : 'An admin makes one.'}
            </p>
            <Snippet what="the command that sets the key" text={`export ${KEY}=cvk_…`} />
          </section>
        )}
        <ol class="steps">
          <Step title="Start a receiver" is_done={is_done} result="">
            <p>
              It takes the place of your agent's runtime, and prints each message. If the runtime already listens
              somewhere, use its address below.
            </p>
            <Snippet what="the command that receives" text={RECEIVER} />
          </Step>
          {way === 'connect' ? (
            <Step
              title="Connect a machine"
              is_done={done.joined !== null}
              result={done.joined === null ? '' : done.instances.join(', ')}
            >
              <p>
                Run this on the machine that runs the agent. It connects to this service, so it needs no open port and
                no address of its own. <code>--to</code> is where the agent's runtime listens there.
              </p>
              <Snippet what="the command that connects" text={connectCommand(location.origin)} />
              <p>It registers the machine as an instance, joins the meeting, and hands each message to the runtime.</p>
            </Step>
          ) : (
            <>
              <Step title="Register an instance" is_done={done.instances.length > 0} result={done.instances.join(', ')}>
                <p>An instance is one machine that runs agents. It accepts pushes at a webhook address.</p>
                <Snippet what="the command that registers" text={commands.register(location.origin)} />
              </Step>
              <Step title="Let it join a meeting" is_done={done.joined !== null} result={done.joined ?? ''}>
                <Snippet what="the command that joins" text={commands.join(location.origin)} />
              </Step>
            </>
          )}
          <Step
            title="Say something there"
            is_done={done.used_meeting !== null}
            result={done.used_meeting === null ? '' : `in ${done.used_meeting}`}
          >
            <Snippet what="the command that sends" text={commands.send(location.origin, meeting_id)} />
            <p>
              Or write it <a href={addressOf(['meetings', meeting_id])}>in the meeting itself</a>.
            </p>
          </Step>
          <Step title="See it arrive" is_done={is_done} result={is_done ? `at ${done.delivered}` : ''}>
            <p>
              A receiver that responds 200 has the message. If it does not arrive,{' '}
              <a href="/deliveries">its delivery</a> shows why, and the test of its <a href="/instances">instance</a>{' '}
              shows what to do.
            </p>
          </Step>
        </ol>
        {is_done && (
          <p class="guide-end">
            You are done. <a href="/now">See what happens now</a>
          </p>
        )}
      </div>
    </Page>
  );
}

/** Two agents within the service, for people who have no receiver yet. */
function DemoView(): JSX.Element | null {
  const { value, again } = useQuery(
    'demo',
    () => client.demo(),
    ({ name }) => name.startsWith('instance.') || name === 'message.accepted',
  );
  if (value === null) return null;
  const { state, meeting_id } = value;
  const start = async (): Promise<void> => {
    const asked_at = location.pathname;
    const started = await doing(client.startDemo(), () => 'Two agents talk now.');
    again();
    // Somebody who has left the guide meanwhile stays where they are.
    if (started?.meeting_id && location.pathname === asked_at) go(addressOf(['meetings', started.meeting_id]));
  };
  return (
    <section class="demo" aria-label="Demo">
      {state === 'stopped' ? (
        <>
          <p>
            No receiver yet? Two agents inside the service can show how everything looks, in a meeting of their own.
          </p>
          <button type="button" class="button primary" onClick={() => void start()}>
            Start the demo
          </button>
        </>
      ) : (
        <>
          <p>
            The demo runs: two agents {state === 'talking' ? 'talk' : 'listen and reply'} in{' '}
            <a href={addressOf(['meetings', meeting_id ?? ''])}>{meeting_id}</a>. Say something there yourself.
          </p>
          <button
            type="button"
            class="button"
            onClick={() => void doing(client.stopDemo(), () => 'The demo is stopped.').then(again)}
          >
            Stop the demo
          </button>
        </>
      )}
    </section>
  );
}

interface StepProps {
  title: string;
  is_done: boolean;
  result: string;
  children: preact.ComponentChildren;
}

function Step({ title, is_done, result, children }: StepProps): JSX.Element {
  return (
    <li class={is_done ? 'step is-done' : 'step'}>
      <span class="step-mark">{is_done ? <Mark kind="good" /> : <Mark kind="off" />}</span>
      <div class="step-body">
        <h3>
          {title}
          <span class="unseen">{is_done ? ' (done)' : ' (not done yet)'}</span>
          {result !== '' && <Foreign class="step-result">{result}</Foreign>}
        </h3>
        {children}
      </div>
    </li>
  );
}

interface Commands {
  register: (address: string) => string;
  join: (address: string) => string;
  send: (address: string, meeting_id: string) => string;
}

const WEBHOOK = 'http://127.0.0.1:9000/convoke';

/** A receiver that accepts everything. A receiver for real use verifies the signature, as docs/receivers.md shows. */
const RECEIVER =
  `node -e 'require("http").createServer((push, answer) => {\n` +
  `  push.pipe(process.stdout, { end: false });\n` +
  `  push.on("end", () => answer.end());\n` +
  `}).listen(9000, "127.0.0.1")'`;

function connectCommand(address: string): string {
  return `npx convoke connect --agent anna-planner --meeting standup-42 \\\n  --to ${WEBHOOK} --url ${address}`;
}

/** The variable of the terminal in which the commands of Convoke look for a key. */
const KEY = 'CONVOKE_API_KEY';

const COMMANDS: Record<'curl' | 'cli', (needs_key: boolean) => Commands> = {
  curl: (needs_key) => {
    const headers =
      (needs_key ? ` -H "authorization: Bearer $${KEY}"` : '') + ` -H 'content-type: application/json' \\\n`;
    return {
      register: (address) =>
        `curl ${address}/api/v1/instances/register/${headers}` +
        `  -d '{"instance_id": "laptop-anna", "instance_name": "My laptop",\n` +
        `       "agent_ids": ["anna-planner"], "webhook_url": "${WEBHOOK}"}'`,
      join: (address) =>
        `curl ${address}/api/v1/instances/join-meeting/${headers}` +
        `  -d '{"instance_id": "laptop-anna", "meeting_id": "standup-42", "agent_ids": ["anna-planner"]}'`,
      send: (address, meeting_id) =>
        `curl ${quoted(`${address}/api/v1/meetings/${encodeURIComponent(meeting_id)}/messages/`)}${headers}` +
        `  -d '{"message": {"content": "Good morning"}}'`,
    };
  },
  cli: () => ({
    register: (address) =>
      `npx convoke instances register laptop-anna --name 'My laptop' --agent anna-planner \\\n` +
      `  --webhook ${WEBHOOK} --url ${address}`,
    join: (address) => `npx convoke join laptop-anna standup-42 --url ${address}`,
    send: (address, meeting_id) => `npx convoke send ${quoted(meeting_id)} 'Good morning' --url ${address}`,
  }),
};
