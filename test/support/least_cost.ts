/**
 * How often to measure at most. Other work on the machine makes a figure larger, never smaller. So one figure within
 * the limit is proof.
 */
const TRIES = 20;

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
