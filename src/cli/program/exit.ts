/** The exit codes of a command; the same table is at the end of `convoke --help`. */
export const EXIT = { ok: 0, failed: 1, usage: 2, unreachable: 3, refused: 4 } as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Ends a command: prints the message to stderr, one line that says what to do. */
export class CommandFailure extends Error {
  readonly exit_code: ExitCode;

  constructor(exit_code: ExitCode, message: string) {
    super(message);
    this.name = 'CommandFailure';
    this.exit_code = exit_code;
  }
}
