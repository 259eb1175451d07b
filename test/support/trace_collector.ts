/** A collector of traces: it takes OTLP over HTTP, and reads protobuf as opentelemetry-proto 1.9 describes it. */
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { TestContext } from 'node:test';
import { until } from './wait.ts';

/** A field of a message: its name, its type, and whether there may be many. */
type Fields = Record<number, readonly [name: string, type: 'text' | 'hex' | 'number' | Fields, many?: 'many']>;

/**
 * Fields of https://github.com/open-telemetry/opentelemetry-proto/tree/main/opentelemetry/proto. Others are skipped.
 */
const ATTRIBUTES: Fields = {
  1: ['key', 'text'],
  2: ['value', { 1: ['text', 'text'], 2: ['flag', 'number'], 3: ['number', 'number'] }],
};
const LINK: Fields = { 1: ['trace_id', 'hex'], 2: ['span_id', 'hex'] };
const SPAN: Fields = {
  1: ['trace_id', 'hex'],
  2: ['span_id', 'hex'],
  3: ['trace_state', 'text'],
  4: ['parent_span_id', 'hex'],
  5: ['name', 'text'],
  6: ['kind', 'number'],
  7: ['start', 'number'],
  8: ['end', 'number'],
  9: ['attributes', ATTRIBUTES, 'many'],
  13: ['links', LINK, 'many'],
  15: ['status', { 2: ['message', 'text'], 3: ['code', 'number'] }],
};
const SCOPE_SPANS: Fields = { 1: ['scope', { 1: ['name', 'text'] }], 2: ['spans', SPAN, 'many'] };
const RESOURCE_SPANS: Fields = {
  1: ['resource', { 1: ['attributes', ATTRIBUTES, 'many'] }],
  2: ['scope_spans', SCOPE_SPANS, 'many'],
};
const REQUEST: Fields = { 1: ['resource_spans', RESOURCE_SPANS, 'many'] };

/** The kinds of spans, by their numbers. */
const KINDS = ['unspecified', 'internal', 'server', 'client', 'producer', 'consumer'] as const;

export interface CollectedSpan {
  trace_id: string;
  span_id: string;
  /** Empty when the span has no parent. */
  parent_span_id: string;
  trace_state: string;
  name: string;
  kind: (typeof KINDS)[number];
  /** Milliseconds since 1970. */
  start: number;
  end: number;
  attributes: Record<string, string | number | boolean>;
  links: { trace_id: string; span_id: string }[];
  /** The message of an error; null when the span has no status. */
  error: string | null;
  resource: Record<string, string | number | boolean>;
}

export class TraceCollector {
  readonly spans: CollectedSpan[] = [];
  /** The headers of each request. */
  readonly requests: Record<string, string | string[] | undefined>[] = [];
  /** The requests without a response, while `hangs` is true. */
  readonly hanging: ServerResponse[] = [];
  hangs = false;
  /** The body of a 401 with which each request is refused; null: requests are taken. */
  refusal: string | null = null;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      void buffer(request).then((body) => {
        this.requests.push({ ...request.headers, path: request.url });
        if (this.hangs) return void this.hanging.push(response);
        if (this.refusal !== null) return void response.writeHead(401).end(this.refusal);
        this.spans.push(...spansIn(body));
        response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
      });
    });
  }

  static async start(t: TestContext): Promise<TraceCollector> {
    const collector = new TraceCollector();
    await new Promise<void>((resolve) => collector.#server.listen(0, '127.0.0.1', resolve));
    t.after(() => collector.close());
    return collector;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Waits until this many spans have arrived. */
  async count(number: number): Promise<CollectedSpan[]> {
    return until(
      `${number} spans`,
      () => this.spans,
      ({ length }) => length >= number,
    );
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

interface Raw extends Record<string, unknown> {
  resource_spans?: {
    resource?: { attributes?: Attributes };
    scope_spans?: { spans?: (Record<string, unknown> & { attributes?: Attributes; links?: unknown[] })[] }[];
  }[];
}
type Attributes = { key: string; value?: { text?: string; flag?: number; number?: number } }[];

function spansIn(body: Buffer): CollectedSpan[] {
  const { resource_spans = [] } = read(body, REQUEST) as Raw;
  return resource_spans.flatMap(({ resource, scope_spans = [] }) =>
    scope_spans.flatMap(({ spans = [] }) =>
      spans.map(({ kind, start, end, attributes, links = [], status, ...span }) => ({
        parent_span_id: '',
        trace_state: '',
        ...(span as Pick<CollectedSpan, 'trace_id' | 'span_id' | 'name'>),
        kind: KINDS[kind as number] ?? 'unspecified',
        start: (start as number) / 1e6,
        end: (end as number) / 1e6,
        attributes: attributesOf(attributes),
        links: links as CollectedSpan['links'],
        error: (status as { code?: number; message?: string } | undefined)?.code === 2 ? messageOf(status) : null,
        resource: attributesOf(resource?.attributes),
      })),
    ),
  );
}

const messageOf = (status: unknown): string => (status as { message?: string }).message ?? '';

function attributesOf(attributes: Attributes = []): CollectedSpan['attributes'] {
  return Object.fromEntries(
    attributes.map(({ key, value = {} }) => [
      key,
      value.text ?? value.number ?? (value.flag === undefined ? '' : true),
    ]),
  );
}

/** Reads a message of protobuf (https://protobuf.dev/programming-guides/encoding/). */
function read(bytes: Buffer, fields: Fields): Record<string, unknown> {
  const message: Record<string, unknown> = {};
  let at = 0;
  const varint = (): number => {
    let number = 0;
    for (let shift = 1; ; shift *= 128) {
      const byte = bytes[at++]!;
      number += (byte & 127) * shift;
      if (byte < 128) return number;
    }
  };
  const next = (length: number): Buffer => bytes.subarray(at, (at += length));
  while (at < bytes.length) {
    const tag = varint();
    const wire_type = tag % 8;
    const value = [varint, () => next(8), () => next(varint()), null, null, () => next(4)][wire_type]!();
    const field = fields[Math.floor(tag / 8)];
    if (field === undefined) continue;
    const [name, type, many] = field;
    const decoded = decode(value, type);
    if (many === undefined) {
      message[name] = decoded;
      continue;
    }
    const list = (message[name] as unknown[] | undefined) ?? [];
    list.push(decoded);
    message[name] = list;
  }
  return message;
}

function decode(value: number | Buffer, type: Fields[number][1]): unknown {
  if (typeof value === 'number') return value;
  if (type === 'text') return value.toString();
  if (type === 'hex') return value.toString('hex');
  if (type === 'number') return value.length === 8 ? Number(value.readBigUInt64LE()) : value.readUInt32LE();
  return read(value, type);
}
