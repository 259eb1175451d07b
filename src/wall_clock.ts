/** What time it is for people. Nothing else in src/ asks for it: what decides gets the time as an argument. */
export function wallNow(): number {
  return Date.now();
}
