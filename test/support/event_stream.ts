/** A client of the live feed without the SDK: one connection and its events. */
import { get, type IncomingMessage } from 'node:http';
import { until } from './wait.ts';

export interface StreamedEvent {
  name: string;
  id: string | null;
  data: Record<string, unknown>;
}

export class EventStream {
  readonly events: StreamedEvent[] = [];
  readonly comments: string[] = [];
  retry_ms: number | null = null;
  /** The id of the last event, with which a client can resume. */
  last_id: string | null = null;
  ended = false;
  readonly #response: IncomingMessage;
  #rest = '';

  constructor(response: IncomingMessage) {
    this.#response = response;
    response.setEncoding('utf8');
    response.on('data', (text: string) => this.#read(text));
    response.on('close', () => (this.ended = true));
    response.on('error', () => {});
  }

  get status(): number {
    return this.#response.statusCode ?? 0;
  }

  get headers() {
    return this.#response.headers;
  }

  /** Everything that arrived on the connection, as text. */
  text = '';

  #read(text: string): void {
    this.text += text;
    this.#rest += text;
    for (;;) {
      const end = this.#rest.indexOf('\n\n');
      if (end === -1) return;
      const block = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + 2);
      this.#take(block.split('\n'));
    }
  }

  #take(lines: string[]): void {
    const fields = new Map<string, string>();
    for (const line of lines) {
      const [, field = '', value = ''] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
      if (field === '') this.comments.push(value);
      else fields.set(field, value);
    }
    const retry = fields.get('retry');
    if (retry !== undefined) this.retry_ms = Number(retry);
    this.last_id = fields.get('id') ?? this.last_id;
    const data = fields.get('data');
    if (data === undefined) return;
    const name = fields.get('event') ?? 'message';
    this.events.push({ name, id: fields.get('id') ?? null, data: JSON.parse(data) as Record<string, unknown> });
  }

  /** Resolves with the events when at least `count` of them satisfy `holds`. */
  async some(count: number, holds: (event: StreamedEvent) => boolean = () => true): Promise<StreamedEvent[]> {
    return until(
      `${count} events`,
      async () => this.events.filter(holds),
      (events) => events.length >= count,
    );
  }

  /** Stops reading and keeps the connection open. */
  pause(): void {
    this.#response.pause();
  }

  resume(): void {
    this.#response.resume();
  }

  close(): void {
    this.#response.destroy();
  }
}

/** Opens the feed. The response may also be a refusal. */
export function openStream(url: string, headers: Record<string, string> = {}): Promise<EventStream> {
  return new Promise((resolve, reject) => {
    // Uses a new connection, so that it closes together with the stream.
    const request = get(url, { agent: false, headers }, (response) => resolve(new EventStream(response)));
    request.on('error', reject);
  });
}
