import type { Clock } from '../../delivery/clock.ts';
import type { Principal } from '../../domain/access.ts';
import { Problem, type ProblemCode } from '../../domain/problem.ts';

/** A token of a key. */
export interface Token {
  readonly key_id: string;
  /** See `digestOf`. */
  readonly digest: string;
}

/**
 * What permits a request, a session or a feed: a token of a key, a session, or the fact that no key was ever made. When
 * the standing ends, the request, session or feed ends.
 */
export interface Standing {
  readonly principal: Principal;
  /** The token; null for a session, or when no key was made. */
  readonly token: Token | null;
  /** Why the standing has ended; null while it is valid. Reads only the memory of this node. */
  revocationReason(): ProblemCode | null;
}

/** @throws Problem when the standing has ended; null is the standing of a public route, which never ends */
export function assertStanding(standing: Standing | null): void {
  const code = standing?.revocationReason() ?? null;
  if (code !== null) throw new Problem(code);
}

/** How often a long download checks its standing. */
const LOOK_EVERY_MS = 250;

/**
 * Watches the standing during an operation that takes long.
 *
 * @param onEnd called once, when the standing ends
 * @returns a function that ends the watch
 */
export function watchStanding(standing: Standing, clock: Clock, onEnd: (code: ProblemCode) => void): () => void {
  let timer = clock.after(LOOK_EVERY_MS, look);
  function look(): void {
    const code = standing.revocationReason();
    if (code === null) timer = clock.after(LOOK_EVERY_MS, look);
    else onEnd(code);
  }
  return () => timer.cancel();
}
