/** The exit codes of a command; the same table is at the end of `convoke --help`. */
export const EXIT = { ok: 0, failed: 1, usage: 2, unreachable: 3, refused: 4 } as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/**
 * Ctrl-C goes to every process of the terminal, and npm and the launcher (main.ts) also pass it on. So one Ctrl-C may
 * arrive as several signals: those within this time count as one.
 */
export const SAME_SIGNAL_MS = 300;

/** Ends a command: prints the message to stderr, one line that says what to do. */
export class CommandFailure extends Error {
  readonly exit_code: ExitCode;

  constructor(exit_code: ExitCode, message: string) {
    super(message);
    this.name = 'CommandFailure';
    this.exit_code = exit_code;
  }
}
