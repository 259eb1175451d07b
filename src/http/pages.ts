/**
 * The pages, as `npm run build` leaves them in web/dist. They need no key, because they contain only files of the
 * repository and ask for a key themselves. The class `Pages` gets the requests without a route. Only requests of a
 * browser get a page, so a mistyped path of the API still gets a 404.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { extname, join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { VERSION } from '../version.ts';
import { type File, sendFile, variantOf } from './files.ts';

/** In a clone, the directory of the build; in the package, a directory beside the bundle. */
const DIRECTORY = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? '../../web/dist/' : './pages/', import.meta.url),
);
const INDEX = 'index.html';
/** The page that documents the API. */
const REFERENCE = 'docs.html';
const REFERENCE_PATH = /^\/docs\/?$/;

/** The paths of views, by their first segment. The page itself judges the other segments. */
const VIEW = /^\/(?:$|portal(?:\/|$)|(?:now|start|meetings|instances|deliveries|agents|keys|audit|nodes)(?:\/|$))/;

/** The only path that another page may show in a frame. */
const PORTAL = /^\/portal(?:\/|$)/;

/** Paths whose responses are for programs, even when a browser opens them: the API, files, and links with secrets. */
const NO_VIEW = /^\/(?:api|assets|docs|invite|mcp)(?:\/|$)/;

/** Files beside the index, such as an icon or the manifest. */
const BESIDE_INDEX = /^\/[\w-]+\.\w+$/;

/** Files whose name contains a hash of their content. */
const IMMUTABLE = /^assets\//;

const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.ico': 'image/x-icon',
  '.woff2': 'font/woff2',
  '.json': 'application/json',
  '.webmanifest': 'application/manifest+json',
  '.txt': 'text/plain; charset=utf-8',
};

const ENCODINGS = [
  { name: 'br', suffix: '.br' },
  { name: 'gzip', suffix: '.gz' },
] as const;

/** The pages allow no inline script or style, nothing from another site, and no text that becomes markup. */
export const PAGE_HEADERS = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "manifest-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
};

const HEADERS_OF_WORDS = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' };

const NOT_BUILT =
  'The pages are being built, which takes some seconds; this loads again by itself.\n\n' +
  'If they do not come: the build failed, and where Convoke was started it said why; or nobody began one, and\n' +
  '`npm run build` where Convoke is installed does. The service itself runs.\n';
/** The response at / for a program, or for a person with curl. */
const IN_WORDS = `Convoke ${VERSION} pushes every message of a meeting, in order and signed, to the machines whose agents take part in it.

  /               in a browser: the pages
  /docs/          in a browser: the API, with commands to copy
  /openapi.json   the API, as OpenAPI 3.1
  /healthz        whether the process is alive
  /readyz         whether messages can be accepted
  /metrics        metrics as Prometheus text

The API itself is under /api/v1/: GET /api/v1/instances/ lists the instances.
`;

/** How soon a browser checks again whether the pages are built. */
const NOT_BUILT_RETRY_S = '2';

/** The built files, as they were when the index was written. */
interface Built {
  index_mtime_ms: number;
  files: ReadonlyMap<string, File>;
}

export class Pages {
  readonly #directory: string;
  readonly #portal_headers: Readonly<Record<string, string>>;
  #built: Built | null = null;
  #reading: Promise<Built | null> | null = null;

  /**
   * @param portal_origins the origins whose pages may frame the portal
   * @param directory the directory of the built pages
   */
  constructor(portal_origins: readonly string[] = [], directory = DIRECTORY) {
    this.#directory = directory;
    const ancestors = portal_origins.length === 0 ? "'none'" : portal_origins.join(' ');
    const policy = PAGE_HEADERS['content-security-policy'].replace(
      "frame-ancestors 'none'",
      `frame-ancestors ${ancestors}`,
    );
    this.#portal_headers = { ...PAGE_HEADERS, 'content-security-policy': policy };
  }

  /** Whether a request without a route is for the pages. */
  isFor({ method, url, headers }: FastifyRequest): boolean {
    if (method !== 'GET' && method !== 'HEAD') return false;
    const path = pathOf(url);
    if (path === '/' || REFERENCE_PATH.test(path) || path.startsWith('/assets/')) return true;
    if (VIEW.test(path)) return isNavigation(headers);
    return BESIDE_INDEX.test(path) || (isNavigation(headers) && !NO_VIEW.test(path));
  }

  /**
   * Responds with a page or a file; false when there is no such file. A mistyped address of a page gets a page that
   * says so.
   */
  async answer(request: FastifyRequest, reply: FastifyReply): Promise<boolean> {
    const path = pathOf(request.url);
    if (path === '/' && !isNavigation(request.headers)) {
      void reply.type('text/plain; charset=utf-8').headers(HEADERS_OF_WORDS).send(IN_WORDS);
      return true;
    }
    const page = REFERENCE_PATH.test(path) ? REFERENCE : VIEW.test(path) ? INDEX : null;
    const is_view = page !== null;
    const built = await this.#read(is_view);
    if (built === null) {
      if (!is_view) return false;
      void reply
        .code(503)
        .type('text/plain; charset=utf-8')
        .headers({ 'cache-control': 'no-store', 'retry-after': NOT_BUILT_RETRY_S, refresh: NOT_BUILT_RETRY_S })
        .send(NOT_BUILT);
      return true;
    }
    const file = built.files.get(page ?? path.slice(1));
    const index = built.files.get(INDEX);
    // At the path of the portal, the index page authenticates only with the portal link, and sends no cookie. So the
    // headers of the response may allow the pages of other products to frame it.
    const is_portal = page === INDEX && PORTAL.test(path);
    if (file !== undefined) sendFile(request, reply, is_portal ? { ...file, headers: this.#portal_headers } : file);
    else if (index !== undefined && isNavigation(request.headers) && !NO_VIEW.test(path))
      sendFile(request, reply.code(404), index);
    else return false;
    return true;
  }

  /**
   * A page whose text the service completes.
   *
   * @param texts the texts, by the names that stand in the page as `{{name}}`; each is shown as it is, and never
   * becomes markup
   * @returns null while the pages are not built
   */
  async completed(name: string, texts: Record<string, string>): Promise<string | null> {
    const file = (await this.#read(true))?.files.get(name);
    if (file === undefined) return null;
    return file.plain.bytes.toString().replaceAll(/\{\{(\w+)\}\}/g, (_, place: string) => escaped(texts[place] ?? ''));
  }

  /** The built files. Reads them again when the index has changed. Only a request for a view makes that check. */
  async #read(is_view: boolean): Promise<Built | null> {
    if (this.#built !== null && !is_view) return this.#built;
    this.#reading ??= this.#readIfChanged().finally(() => (this.#reading = null));
    return this.#reading;
  }

  async #readIfChanged(): Promise<Built | null> {
    const index = await stat(join(this.#directory, INDEX)).catch(() => null);
    if (index === null) return (this.#built = null);
    if (this.#built?.index_mtime_ms === index.mtimeMs) return this.#built;
    this.#built = { index_mtime_ms: index.mtimeMs, files: await filesIn(this.#directory) };
    return this.#built;
  }
}

async function filesIn(directory: string): Promise<Map<string, File>> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const bytes = new Map<string, Buffer>();
  for (const entry of entries) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    bytes.set(relative(directory, path).split(sep).join('/'), await readFile(path));
  }
  const files = new Map<string, File>();
  for (const [name, plain] of bytes) {
    const type = TYPES[extname(name)];
    if (type === undefined) continue;
    const encoded = ENCODINGS.flatMap((encoding) => {
      const smaller = bytes.get(name + encoding.suffix);
      return smaller === undefined ? [] : [{ name: encoding.name, variant: variantOf(smaller) }];
    });
    const cache_control = IMMUTABLE.test(name) ? 'public, max-age=31536000, immutable' : 'no-cache';
    files.set(name, { type, headers: PAGE_HEADERS, cache_control, plain: variantOf(plain), encoded });
  }
  return files;
}

/** Escapes text for HTML, also for the value of an attribute in quotes. */
function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** Whether a person opens a page, rather than a program asking for JSON. */
export function isNavigation(headers: FastifyRequest['headers']): boolean {
  return headers['sec-fetch-mode'] === 'navigate' || (headers.accept ?? '').includes('text/html');
}

function pathOf(url: string): string {
  return url.split('?', 1)[0] ?? '';
}
