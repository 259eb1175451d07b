import { askedPause } from './backoff.ts';
import { ConvokeError, errorFromResponse, errorFromFailure, errorFromProxy, isPassing, isWaitedOut } from './error.ts';
import { pause } from './pause.ts';
import { steadyNow } from './steady_now.ts';
import type { FeedEvent } from './types.ts';

/** The service sends something every 15 s, so a connection that is silent for this long is dead. */
const SILENCE_MS_MAX = 40_000;
const WAIT_FIRST_MS = 500;
const WAIT_MS_MAX = 15_000;
/**
 * After a connection that lasted this long, the pauses begin anew. After a shorter connection they grow on, because
 * something may cut each connection at once.
 */
const LASTED_MS = 5_000;
/** The longest line of the stream. Every event is shorter. */
const LINE_CHARS_MAX = 4 << 20;

export interface EventsOptions {
  /** Aborting it ends the iteration, without an error. */
  signal?: AbortSignal | undefined;
  /** Called when the connection is open, and when it is lost and will be opened again. */
  onConnection?: ((state: 'connected' | 'reconnecting', error: ConvokeError | null) => void) | undefined;
  /** Makes the pauses between connections; tests replace it. */
  sleep?: ((ms: number, signal: AbortSignal | undefined) => Promise<void>) | undefined;
  /** Milliseconds of a clock that nobody can set; tests replace it. */
  now?: (() => number) | undefined;
}

/** One event, as the stream contains it (WHATWG HTML, section 9.2). */
interface RawEvent {
  name: string;
  data: string;
  id: string | null;
}

/** Follows the live feed, over as many connections as needed. */
export async function* listen(
  fetch_: typeof fetch,
  url: string,
  headers: Record<string, string>,
  last_event_id: string | null,
  { signal, onConnection, sleep = pause, now = steadyNow }: EventsOptions,
): AsyncGenerator<FeedEvent, void, undefined> {
  let id = last_event_id;
  let failures = 0;
  let was_connected = false;
  while (!isAborted(signal)) {
    let error: ConvokeError | null = null;
    let connected_at_ms = Infinity;
    try {
      const asking = id === null ? headers : { ...headers, 'last-event-id': id };
      for await (const event of connection(fetch_, url, asking, signal)) {
        // Events that arrived with the previous one may follow.
        if (isAborted(signal)) return;
        if (event === 'connected') {
          connected_at_ms = now();
          was_connected = true;
          onConnection?.('connected', null);
          continue;
        }
        if (event.id !== null) id = event.id;
        if (event.data === '') continue;
        // This event says why the connection closes. The next connection shows whether the end is final.
        if (event.name === 'end') error = endOf(event);
        if (event.name === 'end' || event.name === 'overflow') continue;
        yield { name: event.name, data: dataOf(event), id: id ?? '' } as FeedEvent;
      }
    } catch (caught) {
      // The program has thrown it, in onConnection or into the iteration.
      if (!(caught instanceof ConvokeError)) throw caught;
      if (isAborted(signal)) return;
      error = caught;
      // Before the first connection, a response that is not from Convoke means a wrong address.
      if (!(was_connected ? isWaitedOut(error) : isPassing(error))) throw error;
    }
    if (isAborted(signal)) return;
    onConnection?.('reconnecting', error);
    if (now() - connected_at_ms >= LASTED_MS) failures = 0;
    const wait_ms = Math.min(WAIT_FIRST_MS * 2 ** failures++, WAIT_MS_MAX) * (0.5 + Math.random() / 2);
    await sleep(Math.max(wait_ms, error === null ? 0 : askedPause(error)), signal).catch(() => {});
  }
}

/** Why the service ended the feed; null when it does not say. */
function endOf(event: RawEvent): ConvokeError | null {
  const { code } = (dataOf(event) ?? {}) as { code?: string };
  return code === undefined ? null : new ConvokeError(code, 'the service ended the live feed');
}

/** @throws ConvokeError when the data is not JSON */
function dataOf({ name, data }: RawEvent): unknown {
  try {
    return JSON.parse(data);
  } catch {
    throw new ConvokeError('unexpected_response', `the data of the event ${name} is not JSON`);
  }
}

/**
 * One connection: reports that it is open, then yields its events.
 *
 * @throws ConvokeError when the connection fails
 */
async function* connection(
  fetch_: typeof fetch,
  url: string,
  headers: Record<string, string>,
  signal: AbortSignal | undefined,
): AsyncGenerator<RawEvent | 'connected', void, undefined> {
  const abort = new AbortController();
  const abortByCaller = () => abort.abort();
  signal?.addEventListener('abort', abortByCaller, { once: true });
  let timer = setTimeout(abortByCaller, SILENCE_MS_MAX);
  try {
    const response = await fetch_(url, { headers, redirect: 'manual', cache: 'no-store', signal: abort.signal });
    if (!response.ok) throw errorFromResponse(response, await response.text(), url);
    const is_stream = response.headers.get('content-type')?.startsWith('text/event-stream') === true;
    if (!is_stream || response.body === null) throw errorFromProxy(response, url);
    yield 'connected';
    const reader = response.body.getReader();
    const parser = new EventParser();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      clearTimeout(timer);
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
      timer = setTimeout(abortByCaller, SILENCE_MS_MAX);
    }
  } catch (error) {
    if (error instanceof ConvokeError) throw error;
    if (!abort.signal.aborted || isAborted(signal)) throw errorFromFailure(error, url);
    throw new ConvokeError('timeout', `${url} was silent for ${SILENCE_MS_MAX} ms`, { cause: error });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abortByCaller);
    // The caller may have left the loop before the end of the stream.
    abort.abort();
  }
}

/** Parses the events of a stream. The text may be cut into pieces anywhere. */
export class EventParser {
  #rest = '';
  #name = '';
  #data: string[] = [];
  #id: string | null = null;

  /** Takes the next piece. Returns the events that are now complete. */
  push(text: string): RawEvent[] {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? '';
    if (this.#rest.length > LINE_CHARS_MAX) {
      throw new ConvokeError('unexpected_response', 'a line of the live feed has no end');
    }
    const events: RawEvent[] = [];
    for (const line of lines) {
      if (line === '') events.push(...this.#dispatch());
      else this.#take(line);
    }
    return events;
  }

  #take(line: string): void {
    const colon = line.indexOf(':');
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.#name = value;
    else if (field === 'data') this.#data.push(value);
    else if (field === 'id') this.#id = value;
  }

  #dispatch(): RawEvent[] {
    const event = { name: this.#name === '' ? 'message' : this.#name, data: this.#data.join('\n'), id: this.#id };
    this.#name = '';
    this.#data = [];
    this.#id = null;
    return event.data === '' && event.id === null ? [] : [event];
  }
}

function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}
