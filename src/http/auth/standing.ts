import type { Clock } from '../../delivery/clock.ts';
import type { Principal } from '../../domain/access.ts';
import type { ProblemCode } from '../../domain/problem.ts';

/** A token of a key. */
export interface Token {
  readonly key_id: string;
  /** See `digestOf`. */
  readonly digest: string;
}

/** What a request, a session or a feed stands on: a token of a key, a session, or that no key was made. When it ends, they do. */
export interface Standing {
  readonly principal: Principal;
  /** Null where it is none. */
  readonly token: Token | null;
  /** Why it does not hold any more; null while it does. Asks only what this node knows. */
  revocationReason(): ProblemCode | null;
}

/** How often it is asked whether what goes on for long may still. */
const LOOK_EVERY_MS = 500;

/**
 * Looks after something that goes on for long, until it is over.
 *
 * @param onEnd called once, when the standing ends
 * @returns call it when it is over
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
