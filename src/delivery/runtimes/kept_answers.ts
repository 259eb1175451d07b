/** The most characters of the answers of one push: a thousand agents with 4,000 characters each. */
export const ANSWERS_CHARS_MAX = 4 << 20;
/** The most characters of the answers of all pushes that still ask their agents. */
const ALL_ANSWERS_CHARS_MAX = 64 << 20;
/**
 * When the answers have this many characters, no more agents are asked: the rest of the room is for the answers of
 * agents that run already.
 */
const ASKING_CHARS_MAX = ALL_ANSWERS_CHARS_MAX / 2;

/** The memory for answers. A push keeps its answers until all agents of the instance have answered. */
export class KeptAnswers {
  #chars = 0;

  /** Whether more agents may be asked. */
  get hasRoom(): boolean {
    return this.#chars < ASKING_CHARS_MAX;
  }

  /** The answers of one push. */
  ofPush(): AnswersOfPush {
    return new AnswersOfPush(this);
  }

  take(chars: number): boolean {
    if (this.#chars + chars > ALL_ANSWERS_CHARS_MAX) return false;
    this.#chars += chars;
    return true;
  }

  release(chars: number): void {
    this.#chars -= chars;
  }
}

export class AnswersOfPush {
  readonly #all: KeptAnswers;
  #chars = 0;

  constructor(all: KeptAnswers) {
    this.#all = all;
  }

  /** Whether more agents may be asked. */
  get hasRoom(): boolean {
    return this.#all.hasRoom;
  }

  /**
   * `too_long`: the answers of this push are longer than ANSWERS_CHARS_MAX. `no_room`: the answers of all pushes
   * together leave no room now.
   */
  take(chars: number): 'kept' | 'too_long' | 'no_room' {
    if (this.#chars + chars > ANSWERS_CHARS_MAX) return 'too_long';
    if (!this.#all.take(chars)) return 'no_room';
    this.#chars += chars;
    return 'kept';
  }

  /** The push has its result. Call it once. */
  release(): void {
    this.#all.release(this.#chars);
    this.#chars = 0;
  }
}
