/**
 * The time of day, for people. Nothing else in src/ asks for it: code that decides something gets the time as an
 * argument.
 */
export function wallNow(): number {
  return Date.now();
}
