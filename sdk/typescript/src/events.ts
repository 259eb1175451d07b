import { askedPause } from './backoff.ts';
import { ConvokeError, errorFromResponse, errorFromFailure, errorFromProxy, isPassing, isWaitedOut } from './error.ts';
import { pause } from './pause.ts';
import type { FeedEvent } from './types.ts';

/** The service sends something every 15 s, so a connection that is silent for this long is dead. */
const SILENCE_MS_MAX = 40_000;
const WAIT_FIRST_MS = 500;
const WAIT_MS_MAX = 15_000;
/** The longest line of the stream. Every event is shorter. */
const LINE_CHARS_MAX = 4 << 20;

export interface EventsOptions {
  /** Aborting it ends the iteration, without an error. */
  signal?: AbortSignal | undefined;
  /** Called when the connection is open, and when it is lost and will be opened again. */
  onConnection?: ((state: 'connected' | 'reconnecting', error: ConvokeError | null) => void) | undefined;
  /** Makes the pauses between connections; tests replace it. */
  sleep?: ((ms: number, signal: AbortSignal | undefined) => Promise<void>) | undefined;
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
  { signal, onConnection, sleep = pause }: EventsOptions,
): AsyncGenerator<FeedEvent, void, undefined> {
  let id = last_event_id;
  let failures = 0;
  let was_connected = false;
  while (!isAborted(signal)) {
    let error: ConvokeError | null = null;
    try {
      const asking = id === null ? headers : { ...headers, 'last-event-id': id };
      for await (const event of connection(fetch_, url, asking, signal)) {
        if (event === 'connected') {
          failures = 0;
          was_connected = true;
          onConnection?.('connected', null);
          continue;
        }
        if (event.id !== null) id = event.id;
        if (event.data === '') continue;
        // This event says why the connection closes. The next connection shows whether the end is final.
        if (event.name === 'end') error = endOf(event.data);
        if (event.name === 'end' || event.name === 'overflow') continue;
        yield { name: event.name, data: JSON.parse(event.data) as unknown, id: id ?? '' } as FeedEvent;
      }
    } catch (caught) {
      if (isAborted(signal)) return;
      error = caught instanceof ConvokeError ? caught : errorFromFailure(caught, url);
      // Before the first connection, a response that is not from Convoke means a wrong address.
      if (!(was_connected ? isWaitedOut(error) : isPassing(error))) throw error;
    }
    if (isAborted(signal)) return;
    onConnection?.('reconnecting', error);
    const wait_ms = Math.min(WAIT_FIRST_MS * 2 ** failures++, WAIT_MS_MAX) * (0.5 + Math.random() / 2);
    await sleep(Math.max(wait_ms, error === null ? 0 : askedPause(error)), signal).catch(() => {});
  }
}

/** Why the service ended the feed; null when it does not say. */
function endOf(data: string): ConvokeError | null {
  const { code } = JSON.parse(data) as { code?: string };
  return code === undefined ? null : new ConvokeError(code, 'the service ended the live feed');
}

/** One connection: reports that it is open, then yields its events. */
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
    if (!response.ok) throw errorFromResponse(response, await response.text(), url, Date.now());
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
    if (!abort.signal.aborted || isAborted(signal)) throw error;
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
