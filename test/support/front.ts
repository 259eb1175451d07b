/** Temporary: serves web/dist before a service that does not do so yet. */
import { readFile } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join } from 'node:path';

const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const TYPES: Record<string, string> = { '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };

export async function startFront(service: string): Promise<{ url: string; close: () => void }> {
  const { hostname, port } = new URL(service);
  const server = createServer(async (req, res) => {
    const { pathname } = new URL(req.url ?? '', 'http://x');
    if (/^\/(api|metrics|docs|openapi)/.test(pathname)) {
      const up = request({ hostname, port, path: req.url, method: req.method, headers: req.headers }, (answer) => {
        res.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(res);
      });
      up.on('error', () => res.destroy());
      res.on('close', () => up.destroy());
      req.pipe(up);
      return;
    }
    const file = /^\/assets\/|^\/(theme\.js|favicon\.svg)$/.test(pathname) ? pathname : '/index.html';
    const body = await readFile(join(import.meta.dirname, '../../web/dist', file));
    const type = TYPES[extname(file)] ?? 'text/html; charset=utf-8';
    res.writeHead(200, { 'content-type': type, 'content-security-policy': CSP }).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
