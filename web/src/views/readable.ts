const SPEAKER = ['sender', 'author', 'from_agent', 'name', 'role', 'from'];
const SPEECH = ['content', 'text', 'body', 'message'];

/** The sender and the text, if a message has them in the usual fields. */
export function readable(message: Record<string, unknown>): { from: string | null; text: string | null } {
  const textAt = (names: readonly string[]): string | null => {
    for (const name of names) {
      const value = message[name];
      if (typeof value === 'string' && value !== '') return value;
    }
    return null;
  };
  return {
    from: textAt(SPEAKER),
    text: textAt(SPEECH),
  };
}
