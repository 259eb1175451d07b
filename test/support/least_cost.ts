/**
 * How often to measure at most. Other work on the machine makes a figure larger, never smaller. So one figure within
 * the limit is proof.
 */
const TRIES = 20;

/** Work like that of the service: to read and write the text of many small objects. */
const WORK = JSON.stringify(Array.from({ length: 20_000 }, (_, number) => ({ number, text: 'x' })));
const WORK_ROUNDS = 25;
/** What these rounds take on the machine on which the limits of processor time were measured. */
const WORK_MS = 115;

/**
 * Measures until a figure is at most the limit, but no more than TRIES times.
 *
 * @returns the smallest figure
 */
export async function leastCost(limit: number, measure: () => Promise<number> | number): Promise<number> {
  let least = Infinity;
  for (let tries = 0; tries < TRIES && least > limit; tries++) least = Math.min(least, await measure());
  return least;
}

/** A limit of processor time for this machine: if its processor is slower, the limit is that much longer. */
export async function onThisMachine(limit_ms: number): Promise<number> {
  const work_ms = await leastCost(WORK_MS, () => {
    const before = process.threadCpuUsage();
    for (let round = 0; round < WORK_ROUNDS; round++) JSON.stringify(JSON.parse(WORK));
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1000;
  });
  return limit_ms * Math.max(1, work_ms / WORK_MS);
}
