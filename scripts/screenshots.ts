/**
 * Takes the pictures of the pages in docs/images: a real browser shows a real service, with real receivers that talk
 * and fail for a minute. The script takes about two minutes.
 */
import { mkdir, stat } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';
import { Visitor } from '../test/support/browser.ts';
import { type Behaviour, Receiver } from '../test/support/receiver.ts';
import { Service } from '../test/support/service.ts';

const IMAGES = new URL('../docs/images/', import.meta.url);
/** The most bytes of a picture: a larger one is too much for a README. */
const BYTES_MAX = 300_000;
const TALK_MS = 62_000;

const DESK = { viewport: { width: 1360, height: 850 }, deviceScaleFactor: 1 };
const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2 };

interface Machine {
  instance_id: string;
  instance_name: string;
  agent_ids: string[];
  meetings: string[];
  behaviour: Behaviour;
  success_statuses?: '2xx';
}

/** A receiver that needs about `typical_ms` to respond. */
function answering(typical_ms: number, status = 200): Behaviour {
  return (_request, number) => ({ status, after: pause(typical_ms * (0.6 + ((number * 37) % 100) / 80)) });
}

const MEETINGS = ['standup-42', 'release-1.9', 'incident-311', 'design-review', 'triage'];

const MACHINES: Machine[] = [
  {
    instance_id: 'laptop-anna',
    instance_name: "Anna's laptop",
    agent_ids: ['anna-planner', 'anna-coder'],
    meetings: MEETINGS,
    behaviour: answering(35),
  },
  {
    instance_id: 'openclaw-ben',
    instance_name: "Ben's OpenClaw",
    agent_ids: ['ben-scout'],
    meetings: ['standup-42', 'release-1.9', 'triage'],
    behaviour: answering(60),
  },
  {
    instance_id: 'build-runner',
    instance_name: 'Build runner',
    agent_ids: ['ci-bot'],
    meetings: ['standup-42', 'release-1.9', 'incident-311'],
    behaviour: answering(210),
  },
  {
    instance_id: 'hermes-lab',
    instance_name: 'Hermes in the lab',
    agent_ids: ['lab-reviewer', 'lab-tester'],
    meetings: ['design-review', 'release-1.9'],
    behaviour: answering(90, 202),
    success_statuses: '2xx',
  },
  {
    instance_id: 'gpu-box-2',
    instance_name: 'GPU box 2',
    agent_ids: ['llama-reviewer'],
    meetings: MEETINGS,
    behaviour: { status: 401, body: '{"error":"missing bearer token"}' },
  },
  {
    instance_id: 'pi-kitchen',
    instance_name: 'Raspberry Pi, kitchen',
    agent_ids: ['kitchen-display'],
    meetings: ['standup-42'],
    behaviour: answering(25),
  },
  {
    instance_id: 'mail-bridge',
    instance_name: 'Mail bridge',
    agent_ids: ['mail-summary'],
    meetings: ['triage'],
    behaviour: answering(40, 202),
  },
  {
    instance_id: 'research-vm',
    instance_name: 'Research VM',
    agent_ids: ['paper-finder', 'fact-checker'],
    meetings: ['design-review', 'triage'],
    behaviour: answering(120),
  },
];

const SAID: [from: string, content: string, target_agents?: string[]][] = [
  ['Anna', 'Good morning. What is left for 1.9?'],
  ['anna-planner', 'Three things: the changelog, the migration note, and the flaky upload test.'],
  ['ci-bot', 'The upload test failed in 2 of the last 40 runs, both on the slow runner.'],
  ['Anna', 'Please find out what they have in common.', ['ci-bot', 'ben-scout']],
  ['ben-scout', 'Both ran while the cache was being rebuilt. The test waits 2 s; the rebuild takes 3.'],
  ['anna-coder', 'Then it should wait for the rebuild and not for a time.\nI have a patch, 11 lines; shall I open it?'],
  ['Anna', 'Yes, and let the reviewer look at it.', ['anna-coder', 'llama-reviewer']],
  ['anna-planner', 'Changelog and migration note are done. Once the patch is in, 1.9 can go out.'],
];

async function connect(service: Service, machine: Machine): Promise<Receiver> {
  const { meetings, behaviour, ...registration } = machine;
  const receiver = new Receiver(behaviour);
  await receiver.up();
  await service.register({ ...registration, webhook_url: receiver.url });
  for (const meeting_id of meetings) await service.join(meeting_id, machine.instance_id, machine.agent_ids);
  return receiver;
}

/** Sends messages at a rate that rises and falls, until the signal stops it. */
async function talk(service: Service, enough: AbortSignal): Promise<void> {
  const began_ms = performance.now();
  for (let i = 0; !enough.aborted; i++) {
    const meeting_id = MEETINGS[1 + ((i * 7) % (MEETINGS.length - 1))] as string;
    const [from, content] = SAID[i % SAID.length] as (typeof SAID)[number];
    await service.send(meeting_id, { from, content, created_at: new Date().toISOString() });
    await pause(520 + 300 * Math.sin((performance.now() - began_ms) / 6000));
  }
}

async function hold(service: Service): Promise<void> {
  for (const [from, content, target_agents] of SAID) {
    await service.send('standup-42', { from, content, created_at: new Date().toISOString() }, target_agents);
    await pause(900);
  }
}

interface Picture {
  name: string;
  path: string;
  screen: typeof DESK;
  colorScheme: 'light' | 'dark';
  /** Brings the page into the state for the picture. */
  ready: (page: Page) => Promise<void>;
}

const main = (page: Page) => page.getByRole('main');

async function minute(page: Page): Promise<void> {
  // Waits for the events that the feed brings.
  await page.locator('.activity li').nth(14).waitFor();
}

async function members(page: Page): Promise<void> {
  await conversation(page);
  await page.getByText('5 instances').click();
  await page.getByRole('button', { name: 'Let an instance join' }).waitFor();
}

async function conversation(page: Page): Promise<void> {
  await page.getByRole('article', { name: `Message ${SAID.length}` }).waitFor();
  await page.getByRole('list', { name: 'Deliveries' }).last().waitFor();
}

async function refusedPush(page: Page): Promise<void> {
  await conversation(page);
  await page
    .getByRole('button', { name: /^GPU box 2/ })
    .first()
    .click();
  await page.getByText('answered 401').first().waitFor();
}

async function diagnosed(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Test the webhook' }).click();
  await page.getByRole('group', { name: 'Result of the test' }).waitFor();
}

const listed = (page: Page): Promise<void> => main(page).locator('[data-row="4"]').waitFor();

const PICTURES: Picture[] = (['light', 'dark'] as const).flatMap((colorScheme) => [
  { name: 'now', path: '/now', screen: DESK, colorScheme, ready: minute },
  { name: 'meeting', path: '/meetings/standup-42', screen: DESK, colorScheme, ready: refusedPush },
  { name: 'instance', path: '/instances/gpu-box-2', screen: DESK, colorScheme, ready: diagnosed },
  { name: 'deliveries', path: '/deliveries', screen: DESK, colorScheme, ready: listed },
  { name: 'phone-now', path: '/now', screen: PHONE, colorScheme, ready: minute },
  { name: 'phone-meeting', path: '/meetings/standup-42', screen: PHONE, colorScheme, ready: conversation },
  { name: 'phone-members', path: '/meetings/standup-42', screen: PHONE, colorScheme, ready: members },
  { name: 'phone-instance', path: '/instances/gpu-box-2', screen: PHONE, colorScheme, ready: diagnosed },
]);

async function take(visitor: Visitor, service: Service, picture: Picture): Promise<void> {
  const { name, path, screen, colorScheme, ready } = picture;
  const file = fileURLToPath(new URL(`${name}-${colorScheme}.png`, IMAGES));
  await visitor.visit(service.url, { path, colorScheme, ...screen, reducedMotion: 'reduce' }, async (page) => {
    await main(page).waitFor();
    await ready(page);
    await page.locator('.skeleton').first().waitFor({ state: 'detached' });
    await page.screenshot({ path: file, animations: 'disabled', caret: 'hide' });
  });
  const { size } = await stat(file);
  if (size > BYTES_MAX) throw new Error(`${file} has ${size} bytes; more than ${BYTES_MAX} are too many`);
  console.log(`${name}-${colorScheme}.png, ${Math.ceil(size / 1024)} KB`);
}

const service = new Service();
const visitor = new Visitor();
const receivers: Receiver[] = [];
const enough = new AbortController();
try {
  await mkdir(IMAGES, { recursive: true });
  await service.start();
  for (const machine of MACHINES) receivers.push(await connect(service, machine));
  const kitchen = receivers[MACHINES.findIndex(({ instance_id }) => instance_id === 'pi-kitchen')];
  const held = hold(service).then(() => kitchen?.down());
  const talked = talk(service, enough.signal);
  const full = pause(TALK_MS);
  await held;
  await service.send('standup-42', { from: 'Anna', content: 'Thank you. It goes out at noon.' });
  const is_now = ({ path }: Picture): boolean => path === '/now';
  for (const picture of PICTURES.filter((each) => !is_now(each))) await take(visitor, service, picture);
  await full;
  for (const picture of PICTURES.filter(is_now)) await take(visitor, service, picture);
  enough.abort();
  await talked;
} finally {
  enough.abort();
  await visitor.close();
  for (const receiver of receivers) await receiver.down();
  await service.close();
}
