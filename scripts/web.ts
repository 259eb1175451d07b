/**
 * Builds the pages in `web/` into `web/dist`, where the service finds them. With --if-stale it builds only when a
 * source has changed. A build takes about a second. Without the pages the service still serves its API.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, glob, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, gzip } from 'node:zlib';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const DIST = join(ROOT, 'web/dist');
/** Holds the digest of the sources that were built. */
const STAMP = join(DIST, '.built-from');
const SOURCES = [
  'web/{index.html,docs.html,invite.html,vite.config.ts,tsconfig.json}',
  'web/{src,public}/**/*.*',
  'sdk/typescript/src/*.ts',
];
/** Packages that become a part of the pages. */
export const TOOLS_IN_PAGES = ['preact', 'uplot'];
/** Packages whose version decides the result of a build. */
const TOOLS = ['vite', ...TOOLS_IN_PAGES];

/** Builds when the sources differ from those of the last build. Several processes may do so at the same time. */
export async function buildIfStale(): Promise<'built' | 'fresh'> {
  const digest = await digestOfSources();
  if ((await builtFrom()) === digest) return 'fresh';
  await build(digest);
  return 'built';
}

async function build(digest: string): Promise<void> {
  // Only a clone has the tools; a published package contains the built pages.
  const { build } = await import('vite');
  const out = await mkdtemp(join(ROOT, 'web/.dist-'));
  try {
    await build({
      configFile: join(ROOT, 'web/vite.config.ts'),
      logLevel: 'warn',
      build: { outDir: out, emptyOutDir: true },
    });
    await compress(out);
    await writeFile(join(out, '.built-from'), digest);
    // Only its owner can read a temporary directory, but the service may run as another user.
    await chmod(out, 0o755);
    await putInPlace(out, digest);
  } finally {
    await rm(out, { recursive: true, force: true });
  }
}

/** Compresses once, as small as possible, instead of with every request; src/http/pages.ts serves the results. */
async function compress(out: string): Promise<void> {
  for (const entry of await readdir(out, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !/\.(html|js|css|svg)$/.test(entry.name)) continue;
    const path = join(entry.parentPath, entry.name);
    const bytes = await readFile(path);
    const [br, gz] = await Promise.all([promisify(brotliCompress)(bytes), promisify(gzip)(bytes, { level: 9 })]);
    if (br.length < bytes.length) await writeFile(`${path}.br`, br);
    if (gz.length < bytes.length) await writeFile(`${path}.gz`, gz);
  }
}

/** The digest of the sources of the pages that are in place; null when there are none. */
const builtFrom = (): Promise<string | null> => readFile(STAMP, 'utf8').catch(() => null);

/** Replaces the pages as a whole, so that nobody gets a mixture of two builds. */
async function putInPlace(out: string, digest: string): Promise<void> {
  const old = `${out}-old`;
  if (existsSync(DIST)) {
    // Another process was quicker, with the same sources. To replace pages leaves a moment without any.
    if ((await builtFrom()) === digest) return;
    await rename(DIST, old).catch(() => {});
  }
  // Another process may have been quicker here too.
  await rename(out, DIST).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
  });
  await rm(old, { recursive: true, force: true });
}

async function digestOfSources(): Promise<string> {
  const hash = createHash('sha256');
  const files: string[] = [];
  for await (const file of glob(SOURCES, { cwd: ROOT })) files.push(file);
  for (const file of files.toSorted()) hash.update(`${file}\0`).update(await readFile(join(ROOT, file)));
  const lock = JSON.parse(await readFile(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version?: string }>;
  };
  for (const tool of TOOLS) hash.update(`${tool} ${lock.packages[`node_modules/${tool}`]?.version}\0`);
  return hash.digest('hex');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (!process.argv.includes('--if-stale')) await rm(STAMP, { force: true });
  try {
    if ((await buildIfStale()) === 'built') console.error('the pages are built');
  } catch (error) {
    const now = existsSync(DIST) ? 'those of the last build are served' : 'there are none to serve';
    console.error(`\nERROR: the pages could not be built, and ${now}.\n${String(error)}\n`);
    console.error(
      'The rest of the service runs. Correct what it reports, then run `npm run build`; no restart is needed.\n',
    );
    process.exitCode = 1;
  }
}
