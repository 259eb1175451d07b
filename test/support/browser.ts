/** A real browser on the pages of a real service; it also fails on what must never happen on any page. */
import assert from 'node:assert/strict';
import { after, before } from 'node:test';
import chromium from '@sparticuz/chromium';
import { type Browser, type BrowserContextOptions, chromium as playwright, type Page } from 'playwright-core';
import { buildIfStale } from '../../scripts/web.ts';

/** For one thing that a page is to show; far longer than any takes, also on a busy machine. */
const PATIENCE_MS = 60_000;
/** Like a desk, unless a test says otherwise. */
const VIEWPORT = { width: 1440, height: 900 };

export interface Visit extends BrowserContextOptions {
  path?: string;
  /** What the console may complain of: browsers write a line for each answer that is no success. */
  allowed?: RegExp;
  /** A browser that knows no locale, as on a server: its language is then no language tag. */
  has_locale?: boolean;
  /** Another origin that the page may ask. */
  also?: string;
}

export class Visitor {
  #browser: Browser | null = null;

  async start(): Promise<void> {
    await buildIfStale();
    this.#browser = await playwright.launch({
      executablePath: await chromium.executablePath(),
      headless: true,
      env: { ...process.env, LC_ALL: 'POSIX' },
      // Its own arguments are made for another place: one process, which ends with its first page, and no web security.
      args: ['--no-sandbox', '--disable-gpu', '--font-render-hinting=none'],
    });
  }

  async close(): Promise<void> {
    await this.#browser?.close();
  }

  /**
   * Opens a page in a browser that remembers nothing, and lets a test use it. It fails as well when the page logs an
   * error, throws, asks any other host for anything, or violates its Content-Security-Policy.
   */
  async visit(
    url: string,
    { path = '/', allowed, has_locale = true, also, ...options }: Visit,
    use: (page: Page) => Promise<void>,
  ): Promise<void> {
    assert.ok(this.#browser !== null, 'the browser is not started');
    const context = await this.#browser.newContext({
      viewport: VIEWPORT,
      ...(has_locale && { locale: 'en-GB' }),
      ...options,
    });
    context.setDefaultTimeout(PATIENCE_MS);
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

/** One browser for all tests of a file; each visits with a context of its own. */
export function useVisitor(): Visitor {
  const visitor = new Visitor();
  before(() => visitor.start());
  after(() => visitor.close());
  return visitor;
}
