/** A change of the wall clock by less than this is no step. So a time of `steadyOf` may be wrong by this much. */
export const STEP_MS = 1_000;
/** A process keeps this many steps, and forgets the oldest. */
const STEPS_MAX = 16;

interface Step {
  /** When the step was seen, on the steady clock. */
  since: number;
  /** How far the wall clock is ahead of the steady clock since then. */
  ahead_ms: number;
}

/**
 * Remembers when somebody set the wall clock. So a process can tell how old a stored time of the wall clock is,
 * although the wall clock was set since.
 */
export class WallSteps {
  /** The oldest first. */
  readonly #steps: Step[];

  /** @param now the steady time @param wall_ms the time of the wall clock at the same moment */
  constructor(now: number, wall_ms: number) {
    this.#steps = [{ since: now, ahead_ms: wall_ms - now }];
  }

  /** Takes a reading of both clocks, and returns that of the wall clock. Each reading that is stored must come here. */
  read(now: number, wall_ms: number): number {
    const steps = this.#steps;
    const ahead_ms = wall_ms - now;
    if (Math.abs(ahead_ms - (steps.at(-1) as Step).ahead_ms) > STEP_MS) {
      steps.push({ since: now, ahead_ms });
      if (steps.length > STEPS_MAX) steps.shift();
    }
    return wall_ms;
  }

  /**
   * The latest steady time at which the wall clock may have shown `wall_ms`. A wall clock that was set back shows the
   * same time twice, and another node may have set its clock at another moment. In doubt a message counts as younger
   * than it is, so that no rule leaves it out.
   */
  steadyOf(wall_ms: number): number {
    let latest = -Infinity;
    let until = Infinity;
    for (const { since, ahead_ms } of this.#steps.toReversed()) {
      latest = Math.max(latest, Math.min(wall_ms - ahead_ms, until));
      until = since;
    }
    return latest;
  }
}
