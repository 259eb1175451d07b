/**
 * Checks an option that is a number. A comparison with NaN is always false, so a tolerance or a limit that is NaN would
 * let everything pass.
 *
 * @param value undefined when the option is absent
 * @throws TypeError when the value is no number
 * @throws RangeError when it is NaN, below `min`, or above `max`
 */
export function assertNumberOption(name: string, value: number | undefined, min: number, max = Infinity): void {
  if (value === undefined) return;
  // In plain JavaScript, and with a value from JSON, the type may be wrong.
  if (typeof value !== 'number') throw new TypeError(`${name} must be a number, not ${String(value)}`);
  if (value >= min && value <= max) return;
  throw new RangeError(`${name} must be ${min} or more${max === Infinity ? '' : `, up to ${max}`}, not ${value}`);
}

/**
 * Checks how many pushes a caller takes at a time. Nobody can take a part of a push.
 *
 * @throws TypeError, RangeError as `assertNumberOption`
 */
export function assertConcurrency(concurrency: number): void {
  assertNumberOption('concurrency', concurrency, 1);
  if (Number.isInteger(concurrency) || concurrency === Infinity) return;
  throw new RangeError(`concurrency must be a whole number, not ${concurrency}`);
}
