/**
 * npm run simulate -- [--seeds N] [--seed S] [--kind plain|pulling|talking|returning|late|expiring] [--nodes one|several]
 * [--planted [--only NAME]]
 *
 * Runs N worlds with consecutive seeds, from `--seed` on or from a random seed on. A single world prints its trace.
 * Without `--nodes`, several nodes share the store in a part of the worlds.
 */
import { parseArgs } from 'node:util';
import { plant, PLANTED_BUGS, SEEDS_PER_BUG, worldsFor } from './planted.ts';
import { run } from './run.ts';
import { runOnAllCores } from './shares.ts';
import { KINDS, World } from './world.ts';

const { values } = parseArgs({
  options: {
    seeds: { type: 'string' },
    seed: { type: 'string' },
    nodes: { type: 'string' },
    kind: { type: 'string', default: 'plain' },
    planted: { type: 'boolean', default: false },
    only: { type: 'string' },
  },
});

const cluster = values.nodes === undefined ? undefined : values.nodes === 'several';
const kind = KINDS.find((name) => name === values.kind);
if (kind === undefined) throw new Error(`--kind is one of ${KINDS.join(', ')}`);
const options = { kind, ...(cluster !== undefined && { cluster }) };

process.exitCode = (await (values.planted ? findPlanted() : findOwn())) ? 0 : 1;

async function findOwn(): Promise<boolean> {
  const seeds = Number(values.seeds ?? (values.seed === undefined ? 1_000 : 1));
  const first = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(values.seed);
  const began = performance.now();
  const { worlds, steps, trace_hash, finding } = await (seeds === 1
    ? run((seed, of) => new World(seed, of), first, 1, { ...options, onTrace: (line) => console.log(line) })
    : runOnAllCores(first, seeds, options));
  const seconds = (performance.now() - began) / 1_000;
  console.log(
    `seeds ${first} to ${first + worlds - 1}: ${steps} events in ${seconds.toFixed(2)} s, ${Math.round(worlds / seconds)} seeds/s, trace ${trace_hash}`,
  );
  if (finding === null) return true;
  console.log(
    `BROKEN: ${finding.violation}\nreplay it: npm run simulate -- --seed ${finding.seed}${kind === 'plain' ? '' : ` --kind ${kind}`}${values.nodes === undefined ? '' : ` --nodes ${values.nodes}`}`,
  );
  return false;
}

async function findPlanted(): Promise<boolean> {
  let all_found = true;
  const first = Number(values.seed ?? 1);
  console.log(`${'planted bug'.padEnd(44)}${'seeds'.padStart(6)}  found as`);
  for (const name of Object.keys(PLANTED_BUGS)) {
    if (values.only !== undefined && !name.includes(values.only)) continue;
    const of = { at_once: 16, ...worldsFor(name) };
    const { worlds, finding } = await run(await plant(name), first, SEEDS_PER_BUG, of);
    if (finding === null) all_found = false;
    console.log(`${name.padEnd(44)}${String(worlds).padStart(6)}  ${finding?.violation ?? 'NOT FOUND'}`);
  }
  return all_found;
}
