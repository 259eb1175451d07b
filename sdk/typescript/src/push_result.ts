/** The most results in one request; fewer when their bodies are long. */
const RESULTS_MAX = 32;
/**
 * The most characters of all bodies in a request: JSON makes at most six bytes of one character, and a request may have
 * a megabyte. A single result may have a body of RESULT_BODY_BYTES_MAX.
 */
const RESULTS_CHARS_MAX = 128 * 1024;
/** The longest body of a result that the service accepts. */
export const RESULT_BODY_BYTES_MAX = 64 * 1024;
const WHY_CHARS_MAX = 500;
const RETRY_AFTER_CHARS_MAX = 200;

/** The result of a push: the response of the agent, or why there is none. */
export type PushResult =
  | {
      /** The HTTP status, as a webhook would return it: 200 to 599. Any other number is handed in as 502. */
      status_code: number;
      /** The value of a header Retry-After: seconds, or a date. */
      retry_after?: string | undefined;
      /** At most 64 KiB of UTF-8; a longer body is cut. */
      body?: string | undefined;
    }
  /** Why the push did not reach the agent. The delivery keeps its place in its lane, and no retry is spent. */
  | { not_reached: string };

/** How often a result is refused, alone in its request, before its text is left out. */
const REFUSALS_MAX = 3;
/** How many requests with results are refused before results go one by one. */
const REFUSED_TOGETHER_MAX = 2;
/** Takes the place of a text that something between this machine and Convoke refuses. */
const LEFT_OUT = 'the text of this result was left out: something between this machine and Convoke refuses it';

/** A result as the service gets it. */
export type HandedInResult = { delivery_id: string; attempt: number } & PushResult;

/**
 * Results that are not handed in yet, the oldest first.
 *
 * A firewall may refuse a request because of the text of one result. Such a result must not hold up the others, nor the
 * pushes. So after two refusals the results go one by one, in requests that bring nothing else. A result that is refused
 * alone goes behind the others. At its third refusal its text is left out.
 */
export class ResultQueue {
  #results: HandedInResult[] = [];
  /** How many requests with results were refused in a row. */
  #refused_together = 0;
  /** How often each result was refused for good when it was alone in its request. */
  readonly #refusals = new Map<string, number>();

  get size(): number {
    return this.#results.length;
  }

  add(result: HandedInResult): void {
    this.#results.push(result);
  }

  /** Whether results go one by one, because something refused requests with results. */
  get is_one_by_one(): boolean {
    return this.#refused_together >= REFUSED_TOGETHER_MAX;
  }

  /** Takes the results for one request. */
  take(): HandedInResult[] {
    if (this.is_one_by_one) return this.#results.splice(0, 1);
    let chars = 0;
    let count = 0;
    for (const result of this.#results.slice(0, RESULTS_MAX)) {
      chars += charsOf(result);
      if (count > 0 && chars > RESULTS_CHARS_MAX) break;
      count++;
    }
    return this.#results.splice(0, count);
  }

  /** Puts back the results of a request that failed. */
  putBack(results: readonly HandedInResult[]): void {
    this.#results.unshift(...results);
  }

  /** The service has these results. */
  arrived(results: readonly HandedInResult[]): void {
    for (const { delivery_id } of results) this.#refusals.delete(delivery_id);
    if (results.length > 0 && this.#refusals.size === 0) this.#refused_together = 0;
  }

  /**
   * Puts back the results of a request to which something else than Convoke responded.
   *
   * @param is_alone whether the results went one by one when the request was made
   * @param is_for_good false when the same request may succeed later
   * @returns the id of the delivery whose text was left out; null: none
   */
  refused(results: readonly HandedInResult[], is_alone: boolean, is_for_good: boolean): string | null {
    const [result] = results;
    if (result === undefined) return null;
    if (!is_alone) {
      this.#refused_together++;
      this.putBack(results);
      return null;
    }
    const refusals = (this.#refusals.get(result.delivery_id) ?? 0) + (is_for_good ? 1 : 0);
    this.#refusals.set(result.delivery_id, refusals);
    const is_left_out = is_for_good && refusals === REFUSALS_MAX;
    this.add(is_left_out ? withoutText(result) : result);
    return is_left_out ? result.delivery_id : null;
  }
}

function withoutText(result: HandedInResult): HandedInResult {
  const { delivery_id, attempt } = result;
  if ('not_reached' in result) return { delivery_id, attempt, not_reached: LEFT_OUT };
  return { delivery_id, attempt, status_code: result.status_code, body: LEFT_OUT };
}

/** The length of the body of a result. */
export function charsOf(result: PushResult): number {
  return 'body' in result ? (result.body?.length ?? 0) : 0;
}

/** Makes a result fit the limits of the service, which would refuse a result beyond a limit at every try. */
export function fitting(result: PushResult): PushResult {
  if ('not_reached' in result)
    return { not_reached: result.not_reached.slice(0, WHY_CHARS_MAX) || 'no reason was given' };
  const { status_code, retry_after, body } = result;
  if (!isStatus(status_code)) return { status_code: 502, body: `the status ${status_code} is none of 200 to 599` };
  return {
    status_code,
    ...(retry_after !== undefined && retry_after.length <= RETRY_AFTER_CHARS_MAX && { retry_after }),
    ...(body !== undefined && { body: cut(body) }),
  };
}

function isStatus(status_code: number): boolean {
  return Number.isInteger(status_code) && status_code >= 200 && status_code <= 599;
}

/** The beginning of a text, as long as the body of a result may be. */
function cut(text: string): string {
  if (text.length * 3 <= RESULT_BODY_BYTES_MAX) return text;
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= RESULT_BODY_BYTES_MAX) return text;
  // A character that was cut in the middle is left out.
  return new TextDecoder().decode(bytes.subarray(0, RESULT_BODY_BYTES_MAX)).replace(/\ufffd+$/, '');
}
