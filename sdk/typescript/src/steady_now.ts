/** Milliseconds of a clock that nobody can set. A machine without a battery may set its clock by years when it has a network. */
export function steadyNow(): number {
  return performance.now();
}
