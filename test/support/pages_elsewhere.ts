/** A page that uses the TypeScript SDK: on another origin than the service, or on the origin of the service. */
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { stripTypeScriptTypes } from 'node:module';
import { join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Page } from 'playwright-core';

const PROGRAMS = fileURLToPath(new URL('../packages/programs/', import.meta.url));
const SOURCES = fileURLToPath(new URL('../../sdk/typescript/src/', import.meta.url));

/** The path of the page. The service has nothing at this path. */
export const PAGE_PATH = '/elsewhere/page.html';

export interface Files {
  /** The directory of the built SDK; when absent, the page uses the sources, which need no build. */
  sdk?: string;
}

interface File {
  type: string;
  text: string;
}

/** The file for a path; null when there is none. */
async function fileAt(path: string, { sdk = SOURCES }: Files): Promise<File | null> {
  const of_sdk = sdk === SOURCES ? 'index.ts' : 'index.js';
  if (path === PAGE_PATH) {
    const imports = { '@convoke/sdk': `/elsewhere/sdk/${of_sdk}` };
    const map = JSON.stringify({ imports });
    const program = "import { useAll } from '/elsewhere/in_a_page.mjs'; globalThis.useAll = useAll;";
    const text = `<!doctype html><title>A page</title><link rel="icon" href="data:,"><script type="importmap">${map}</script><script type="module">${program}</script>`;
    return { type: 'text/html', text };
  }
  if (path === '/elsewhere/in_a_page.mjs') return script(await readFile(join(PROGRAMS, 'in_a_page.mjs'), 'utf8'));
  const name = /^\/elsewhere\/sdk\/(.+)$/.exec(path)?.[1];
  if (name === undefined || normalize(name).startsWith('..')) return null;
  const text = await readFile(join(sdk, name), 'utf8');
  return script(name.endsWith('.ts') ? stripTypeScriptTypes(text) : text);
}

function script(text: string): File {
  return { type: 'text/javascript', text };
}

/** Serves the page on another origin than the service. */
export async function servePages(files: Files = {}): Promise<{ origin: string; close: () => void }> {
  const server = createServer((request, response) => {
    void fileAt(request.url ?? '', files)
      .catch(() => null)
      .then((file) => {
        if (file === null) return response.writeHead(404).end();
        return response.writeHead(200, { 'content-type': file.type }).end(file.text);
      });
  });
  await new Promise<void>((listening) => void server.listen(0, '127.0.0.1', listening));
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, close: () => server.close().closeAllConnections() };
}

/** Lets a browser find the page on the origin of a service, as if one proxy served both. */
export async function putPagesAt(page: Page, origin: string, files: Files = {}): Promise<void> {
  await page.route(`${origin}/elsewhere/**`, async (route) => {
    const file = await fileAt(new URL(route.request().url()).pathname, files);
    if (file === null) await route.fulfill({ status: 404 });
    else await route.fulfill({ contentType: file.type, body: file.text });
  });
}

/** What `useAll` of the page returns. */
export interface Used {
  pulled: string[];
  refused: string;
  answer: string;
}

/** Runs `useAll` of the page. */
export async function useAllIn(
  page: Page,
  given: { base_url: string; api_key: string | undefined; name: string },
): Promise<Used> {
  await page.waitForFunction('globalThis.useAll !== undefined');
  return page.evaluate<Used>(`useAll(${JSON.stringify(given)})`);
}
