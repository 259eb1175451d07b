/** A real browser for the pages of a real service. A test also fails when something happens that no page may do. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import chromium from '@sparticuz/chromium';
import {
  type Browser,
  type BrowserContextOptions,
  chromium as playwright,
  type Page,
  type Request,
} from 'playwright-core';
import { buildIfStale } from '../../scripts/web.ts';

/** How long a test waits for something on a page: far longer than necessary, even on a busy machine. */
const WAIT_MS_MAX = 60_000;
/**
 * A second host name of this machine, for the browser of a test. Over plain HTTP a browser treats a page of this host
 * as a page of another machine, so the page is no secure context.
 */
export const OTHER_MACHINE = 'convoke.test';
/** The size of a desktop window, unless a test says otherwise. */
const VIEWPORT = { width: 1440, height: 900 };

export interface Visit extends BrowserContextOptions {
  path?: string;
  /** The lines that the console may have: browsers write a line for each response that is no success. */
  allowed?: RegExp;
  /** False for a browser without a locale, as on a server: its language is not a valid language tag. */
  has_locale?: boolean;
  /** Another origin to which the page may send requests. */
  also?: string;
}

/** A browser that starts with the first visit. */
export class Visitor {
  #browser: Promise<Browser> | null = null;

  async #start(): Promise<Browser> {
    await buildIfStale();
    return playwright.launch({
      executablePath: await chromium.executablePath(),
      headless: true,
      env: { ...process.env, LC_ALL: 'POSIX' },
      // The default arguments of the package are not fit for tests: they switch web security off, and run a single
      // process, which ends with its first page.
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--font-render-hinting=none',
        `--host-resolver-rules=MAP ${OTHER_MACHINE} 127.0.0.1`,
      ],
    });
  }

  async close(): Promise<void> {
    await (await this.#browser)?.close();
  }

  /**
   * Opens a page in a browser without stored data, and lets a test use the page. Throws when the page logs an error,
   * throws, sends a request to another host, or violates its Content-Security-Policy.
   */
  async visit(
    url: string,
    { path = '/', allowed, has_locale = true, also, ...options }: Visit,
    use: (page: Page) => Promise<void>,
  ): Promise<void> {
    this.#browser ??= this.#start();
    const browser = await this.#browser;
    const context = await browser.newContext({
      viewport: VIEWPORT,
      ...(has_locale && { locale: 'en-GB' }),
      ...options,
    });
    context.setDefaultTimeout(WAIT_MS_MAX);
    const wrong: string[] = [];
    context.on('request', (request) => {
      if (![url, also, 'null'].includes(new URL(request.url()).origin)) wrong.push(`asked ${request.url()}`);
    });
    context.on('console', (message) => {
      const text = message.text();
      if (message.type() !== 'error' && message.type() !== 'warning') return;
      if (allowed?.test(text) !== true) wrong.push(`logged ${text}`);
    });
    context.on('weberror', (error) => wrong.push(`threw ${error.error().message}`));
    context.on('dialog', (dialog) => {
      wrong.push(`opened a dialog: ${dialog.message()}`);
      dialog.dismiss().catch(() => {});
    });
    try {
      const page = await context.newPage();
      await page.goto(url + path);
      await use(page);
      assert.deepEqual(wrong, []);
    } finally {
      // A route that goes on now would throw, because its page closes.
      for (const page of context.pages()) await page.unrouteAll({ behavior: 'ignoreErrors' }).catch(() => {});
      await context.close();
    }
  }
}

/**
 * One browser for all tests of a file. Each visit has its own context. The first visit starts the browser, and not a
 * hook: when the name pattern of a run fits no test of a file, Node runs the `after` hook while a `before` hook still
 * runs. Then nobody would close the browser, and the process would never end.
 */
export function useVisitor(): Visitor {
  const visitor = new Visitor();
  after(() => visitor.close());
  return visitor;
}

/** Follows a link without loading the page again. */
export const follow = (page: Page, path: string): Promise<void> =>
  page.evaluate(`{
    const link = document.createElement('a');
    link.href = ${JSON.stringify(path)};
    document.body.append(link);
    link.click();
    link.remove();
  }`);

/**
 * Makes the long timers of a page a hundred times as long: on a busy machine a notice could go away before a test has
 * looked at it, and the page could give up a request that a test holds back.
 */
export const stretchTimers = (page: Page): Promise<void> =>
  page.evaluate(`{
    const { setTimeout } = window;
    window.setTimeout = (work, ms) => setTimeout(work, ms > 5_000 ? 100 * ms : ms);
  }`);

/** Delays what Preact does after a frame by three seconds, as a busy machine might. */
export const SLOW_FRAMES = `{
  const { setTimeout } = window;
  window.requestAnimationFrame = () => 0;
  window.setTimeout = (callback, delay = 0, ...rest) => setTimeout(callback, delay + 3_000, ...rest);
}`;

/** The URLs of the requests of a page that have no complete response yet, from now on. */
export function openRequests(page: Page): () => string[] {
  const open = new Set<Request>();
  page.on('request', (request) => open.add(request));
  page.on('requestfinished', (request) => open.delete(request));
  page.on('requestfailed', (request) => open.delete(request));
  return () => [...open].map((request) => request.url());
}

/**
 * Holds back the responses to some requests of a page until they are released.
 *
 * @param method only requests with this method; null: all
 */
export async function holdBack(
  page: Page,
  url: string,
  method: string | null = null,
): Promise<{ held: Promise<void>; release: () => void }> {
  const held = Promise.withResolvers<void>();
  const released = Promise.withResolvers<void>();
  await page.route(url, async (route) => {
    if (method !== null && route.request().method() !== method) return route.continue();
    const response = await route.fetch();
    held.resolve();
    await released.promise;
    return route.fulfill({ response });
  });
  return { held: held.promise, release: released.resolve };
}
