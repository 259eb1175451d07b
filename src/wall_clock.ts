/**
 * The time of day, for people. Only this function in src/ reads the wall clock: code that decides something gets the
 * time as an argument.
 */
export function wallNow(): number {
  return Date.now();
}
