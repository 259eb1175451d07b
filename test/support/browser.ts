/** A real browser on the pages of a real service. A test also fails on anything that must never happen on a page. */
import assert from 'node:assert/strict';
import { after } from 'node:test';
import chromium from '@sparticuz/chromium';
import { type Browser, type BrowserContextOptions, chromium as playwright, type Page } from 'playwright-core';
import { buildIfStale } from '../../scripts/web.ts';

/** How long to wait for one thing on a page; far longer than anything takes, even on a busy machine. */
const WAIT_MS_MAX = 60_000;
/**
 * A name of this machine for a browser of a test. Over plain HTTP a browser treats a page from it as a page of
 * another machine, which is no secure context.
 */
export const OTHER_MACHINE = 'convoke.test';
/** The size of a desktop window, unless a test says otherwise. */
const VIEWPORT = { width: 1440, height: 900 };

export interface Visit extends BrowserContextOptions {
  path?: string;
  /** The lines that the console may have: browsers write one for each response that is no success. */
  allowed?: RegExp;
  /** False for a browser without a locale, as on a server, whose language is no valid language tag. */
  has_locale?: boolean;
  /** Another origin that the page may ask. */
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
      // The package's own arguments are not for tests: a single process, which ends with its first page, and no web
      // security.
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
   * Opens a page in a browser without stored data, and lets a test use it. It also fails when the page logs an error,
   * throws, requests anything from another host, or violates its Content-Security-Policy.
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
      await context.close();
    }
  }
}

/**
 * One browser for all tests of a file. Each visit has a context of its own. No hook starts it: when the name pattern of
 * a run fits no test of a file, Node runs the hook after all tests before a hook before them has ended, and the browser
 * would hold the process for ever.
 */
export function useVisitor(): Visitor {
  const visitor = new Visitor();
  after(() => visitor.close());
  return visitor;
}
