/**
 * Shows what waiting pulls cost Node itself: `node:http` alone responds to them. There are no keys, no checks, no
 * limits, no results and no pushes. With two processes, each process forwards half of its requests to the other
 * process, as nodes forward pulls.
 */
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import { fileURLToPath } from 'node:url';
import { freePort } from '../../test/support/free_port.ts';
import { type Contender, endProcess, startProcess } from './contenders.ts';

const ANSWER = JSON.stringify({ pushes: [], results: [] });
const FORWARDED = 'convoke-forwarded';
const HEADERS = { 'content-type': 'application/json', 'content-length': ANSWER.length };

interface Part {
  port: number;
  /** The port of the other process; null when there is none. */
  other_port: number | null;
  /** 0 or 1: the half of the instances to which this process responds itself. */
  half: number;
}

function serve({ port, other_port, half }: Part): void {
  const agent = new http.Agent({ keepAlive: true });
  const answer = (request: IncomingMessage, response: ServerResponse, body: string): void => {
    // Machines with an even number pull from the first process, machines with an odd number from the second. The first
    // half of the instances has the numbers 0 and 1, 4 and 5, …: as many even as odd numbers. So each process forwards
    // half of its requests.
    const number = Number(/i(\d+)/.exec(request.url ?? '')?.[1]);
    if (other_port !== null && (number >> 1) % 2 !== half && !(FORWARDED in request.headers)) {
      const headers = { 'content-type': 'application/json', 'content-length': body.length, [FORWARDED]: '1' };
      const forwarded = http.request({ port: other_port, path: request.url, method: 'POST', agent, headers });
      forwarded.on('response', (from) => {
        response.writeHead(from.statusCode ?? 502, { 'content-type': from.headers['content-type'] });
        from.pipe(response);
      });
      forwarded.end(body);
      return;
    }
    const { wait_s } = JSON.parse(body) as { wait_s: number };
    setTimeout(() => response.writeHead(200, HEADERS).end(ANSWER), wait_s * 1000);
  };
  const server = http.createServer({ keepAliveTimeout: 90_000 }, (request, response) => {
    let body = '';
    request.setEncoding('utf8');
    request.on('data', (chunk: string) => (body += chunk));
    request.on('end', () => answer(request, response, body));
  });
  process.once('SIGTERM', () => process.exit());
  server.listen(port, '127.0.0.1', () => console.log(`ready http://127.0.0.1:${port}`));
}

export function barePulls(processes: 1 | 2): Contender {
  return {
    name: processes === 1 ? 'node:http alone' : 'node:http, 2 processes that forward',
    async start(options) {
      const ports = await Promise.all(Array.from({ length: processes }, () => freePort()));
      const started = await Promise.all(
        ports.map((port, half) => {
          const part: Part = { port, other_port: ports[1 - half] ?? null, half };
          return startProcess('./contenders/bare_pulls.ts', [JSON.stringify(part)], options);
        }),
      );
      return {
        ...started[0]!,
        more_urls: started.slice(1).map(({ url }) => url),
        pids: started.flatMap(({ pids }) => pids),
        async stop() {
          await Promise.all(started.map(({ probe }) => endProcess(probe)));
        },
      };
    },
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) serve(JSON.parse(process.argv[2]!) as Part);
