/** A client below HTTP. It sends any bytes, well-formed or not, and reads the responses. */
import { connect, type Socket } from 'node:net';
import { inTime } from './wait.ts';

export interface RawAnswer {
  status: number;
  /** The headers, by their names in lower case. */
  headers: Record<string, string>;
  text: string;
  /** The code of a problem; empty for every other response. */
  code: string;
}

export class RawClient {
  readonly socket: Socket;
  #received = '';
  #closed = false;
  #moved = Promise.withResolvers<void>();

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.socket = connect(Number(port), hostname);
    this.socket.setEncoding('latin1');
    this.socket.on('data', (text: string) => {
      this.#received += text;
      this.#move();
    });
    this.socket.on('close', () => {
      this.#closed = true;
      this.#move();
    });
    this.socket.on('error', () => {});
  }

  write(bytes: string | Buffer): void {
    this.socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
  }

  /** The responses so far, including 100 Continue. */
  get answers(): RawAnswer[] {
    const answers: RawAnswer[] = [];
    for (let rest = this.#received; rest !== '';) {
      const end_of_head = rest.indexOf('\r\n\r\n');
      if (end_of_head === -1) break;
      const [status_line = '', ...lines] = rest.slice(0, end_of_head).split('\r\n');
      const headers = Object.fromEntries(lines.map((line) => [nameOf(line), line.slice(line.indexOf(':') + 1).trim()]));
      const start = end_of_head + 4;
      // In these tests a chunked response has an empty body.
      const is_chunked = headers['transfer-encoding'] === 'chunked';
      const end = start + (is_chunked ? '0\r\n\r\n'.length : Number(headers['content-length'] ?? 0));
      if (rest.length < end) break;
      const text = Buffer.from(rest.slice(start, end), 'latin1').toString();
      const is_problem = headers['content-type']?.startsWith('application/problem+json') === true;
      const code = is_problem ? (JSON.parse(text) as { code: string }).code : '';
      answers.push({ status: Number(status_line.split(' ')[1]), headers, text, code });
      rest = rest.slice(end);
    }
    return answers;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Waits for `count` responses, or for fewer when the connection ends earlier. */
  async read(count = 1): Promise<RawAnswer[]> {
    while (this.answers.length < count && !this.#closed) await inTime(`${count} answers`, this.#moved.promise);
    return this.answers;
  }

  async end(): Promise<void> {
    while (!this.#closed) await inTime('the end of the connection', this.#moved.promise);
  }

  #move(): void {
    this.#moved.resolve();
    this.#moved = Promise.withResolvers<void>();
  }

  destroy(): void {
    this.socket.destroy();
  }
}

/** The response to these bytes: `413 body_too_large`, `201`, or an empty text when the connection ends without one. */
export async function outcomeOf(url: string, bytes: string | Buffer): Promise<string> {
  const client = new RawClient(url);
  client.write(bytes);
  try {
    return describeAnswers(await client.read());
  } finally {
    client.destroy();
  }
}

export function describeAnswers(answers: RawAnswer[]): string {
  return answers.map(({ status, code }) => `${status} ${code}`.trim()).join(', ');
}

function nameOf(line: string): string {
  return line.slice(0, line.indexOf(':')).toLowerCase();
}
