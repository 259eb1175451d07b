import { reportDamaged } from '../rows/stored_values.ts';

/** A timestamp as its row stores it: JSON escapes a NUL, which PostgreSQL refuses in a text. */
export function timestampText(timestamp: string): string {
  return timestamp === '' ? '' : JSON.stringify(timestamp);
}

export function timestampOf(text: string): string {
  if (text === '') return '';
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'string') return value;
  } catch {
    // The text is damaged. The code below reports that.
  }
  reportDamaged('messages', 'timestamp', text.slice(0, 100));
  return '';
}
