/** Other work on the machine makes a figure larger, never smaller: one that fits is proof, however many did not. */
const TRIES = 20;

/**
 * Measures until a figure is at most the limit, and no more than twenty times.
 *
 * @returns the least of what it measured
 */
export async function leastCost(limit: number, measure: () => Promise<number> | number): Promise<number> {
  let least = Infinity;
  for (let tries = 0; tries < TRIES && least > limit; tries++) least = Math.min(least, await measure());
  return least;
}
