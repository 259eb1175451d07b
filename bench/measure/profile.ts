/** Makes CPU profiles of the service under load, as a short text that shows where each thread spends its time. */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { convoke, scratchDirectory, under } from '../contenders/contenders.ts';
import type { Bench } from './measure.ts';
import { FAN_OUT_1, FAN_OUT_100, ONE_LANE, saturated } from '../scenarios/throughput.ts';

const SHAPES = { a: FAN_OUT_1, b: FAN_OUT_100, h: ONE_LANE };
const FUNCTIONS_SHOWN = 40;
const SHARE_MIN = 0.004;
/** Names that V8 gives to time outside of JavaScript functions. They have no file. */
const WAITING = new Set(['(idle)', '(program)', '(root)']);

interface CpuProfile {
  nodes: { id: number; callFrame: { functionName: string; url: string; lineNumber: number }; children?: number[] }[];
  samples: number[];
  timeDeltas: number[];
  startTime: number;
  endTime: number;
}

/**
 * Runs a scenario with the profiler on, for Convoke alone.
 *
 * @returns the path of the text
 */
export async function profile(bench: Bench, name: string, seconds: number): Promise<string> {
  const shape = SHAPES[name as keyof typeof SHAPES];
  if (shape === undefined) throw new Error(`profiles are made of ${Object.keys(SHAPES).join(', ')}`);
  const directory = await scratchDirectory();
  const node_args = ['--cpu-prof', '--cpu-prof-interval', '500', '--cpu-prof-dir', directory];
  const row = saturated(under({ node_args }, convoke, 'convoke'), shape);
  const figures = await row.measure(bench, seconds);
  const texts: string[] = [];
  for (const file of (await readdir(directory)).toSorted()) {
    const profile = JSON.parse(await readFile(join(directory, file), 'utf8')) as CpuProfile;
    texts.push(textOf(profile, (seconds + 1) * 1e6));
  }
  await rm(directory, { recursive: true });
  const head =
    `Scenario (${name}) with the profiler on, ${seconds} s under load: ` +
    `${figures['messages_per_s']!.toFixed(0)} messages/s, ${figures['pushes_per_s']!.toFixed(0)} pushes/s.\n` +
    `Shares are of the time in which the thread was not idle; (program) is time in native code and system calls.\n` +
    `Made by: npm run bench -- --profile ${name}\n`;
  const out = new URL(`../profiles/${name}.txt`, import.meta.url);
  await mkdir(new URL('.', out), { recursive: true });
  await writeFile(out, `${head}\n${texts.join('\n')}`);
  return fileURLToPath(out);
}

/** @param last_us the length of the end of the profile. Only the end is counted, without the start of the service. */
function textOf(profile: CpuProfile, last_us: number): string {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const by_function = new Map<string, number>();
  const by_place = new Map<string, number>();
  let busy_us = 0;
  let idle_us = 0;
  let at_us = profile.startTime;
  for (const [i, id] of profile.samples.entries()) {
    const us = profile.timeDeltas[i]!;
    at_us += us;
    if (at_us < profile.endTime - last_us) continue;
    const { callFrame } = nodes.get(id)!;
    if (callFrame.functionName === '(idle)') {
      idle_us += us;
      continue;
    }
    busy_us += us;
    add(by_function, functionOf(callFrame), us);
    add(by_place, placeOf(callFrame), us);
  }
  const is_store = profile.nodes.some(({ callFrame }) => callFrame.url.endsWith('/group_commit.ts'));
  const seconds = (us: number): string => (us / 1e6).toFixed(1);
  return [
    `${is_store ? 'The thread of the store' : 'The thread that serves and delivers'}: busy ${seconds(busy_us)} s, idle ${seconds(idle_us)} s`,
    '',
    ...top(by_place, busy_us, 20),
    '',
    ...top(by_function, busy_us, FUNCTIONS_SHOWN),
    '',
  ].join('\n');
}

function add(sums: Map<string, number>, key: string, us: number): void {
  sums.set(key, (sums.get(key) ?? 0) + us);
}

function top(sums: Map<string, number>, whole: number, count: number): string[] {
  return [...sums]
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, count)
    .filter(([, us]) => us / whole >= SHARE_MIN)
    .map(([name, us]) => `${((us / whole) * 100).toFixed(1).padStart(6)} %  ${name}`);
}

type CallFrame = CpuProfile['nodes'][number]['callFrame'];

function functionOf({ functionName, url, lineNumber }: CallFrame): string {
  if (WAITING.has(functionName) || functionName === '(garbage collector)') return functionName;
  if (url === '') return `${functionName || '(anonymous)'}  native`;
  return functionName === '' ? `(line ${lineNumber + 1})  ${shortOf(url)}` : `${functionName}  ${shortOf(url)}`;
}

/** The part of the program that a frame belongs to: a folder of src/, a package, or a module of Node. */
function placeOf({ functionName, url }: CallFrame): string {
  if (functionName.startsWith('(')) return functionName;
  if (url === '') return 'native';
  const short = shortOf(url);
  if (short.startsWith('src/')) return short.split('/').slice(0, 2).join('/');
  return short.startsWith('node:') ? short : short.split('/')[0]!;
}

/** `src/…` or `bench/…` for files of Convoke, `package/…` for files of packages. */
function shortOf(url: string): string {
  const modules_at = url.lastIndexOf('node_modules/');
  if (modules_at !== -1) return url.slice(modules_at + 'node_modules/'.length);
  const src_at = url.lastIndexOf('/src/');
  return src_at === -1 ? url.replace(/^.*\/(?=bench\/)/, '') : url.slice(src_at + 1);
}
