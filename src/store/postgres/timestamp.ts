import { reportDamaged } from '../rows/stored_values.ts';

/** A timestamp as it stands in its row, where a string with a NUL could not. */
export function timestampText(timestamp: string): string {
  return timestamp === '' ? '' : JSON.stringify(timestamp);
}

export function timestampOf(text: string): string {
  if (text === '') return '';
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'string') return value;
  } catch {
    // Below.
  }
  reportDamaged('messages', 'timestamp', text.slice(0, 100));
  return '';
}
