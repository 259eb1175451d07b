/**
 * Builds `dist/`, which is published. It has the commands and the service as one bundle, the pages, the files of
 * `/docs/`, and LICENSES.txt. The threads of both engines and the entry (`src/cli/main.ts`, which every Node can load)
 * are files of their own, because Node starts each of them from the path of its file. `dist/` needs nothing but Node. A
 * clone runs its TypeScript and needs no build.
 *
 * Modules that need a file beside them look whether their own name ends in `.ts`: that shows whether they are in a
 * clone or in the bundle.
 *
 * Rolldown makes the bundle in a second, and is installed with Vite anyway. Names are kept and nothing is minified, so
 * that a stack trace can be read.
 */
import { chmod, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { rolldown } from 'rolldown';
import { buildIfStale, TOOLS_IN_PAGES } from './web.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const DIST = join(ROOT, 'dist');
/** The path of the command `convoke` in the package. */
export const PROGRAM_OF_PACKAGE = './dist/convoke.cjs';
const MODULES = join(ROOT, 'node_modules');

/**
 * The threads of both engines. A thread starts from the path of a file, so the bundle contains each of these modules as
 * a file of its own. All files of the bundle are in one directory: the code that starts a thread looks for the file
 * beside its own (startSqliteThread, startPostgresThread).
 */
const THREADS = {
  sqlite_thread: 'src/store/sqlite/thread.ts',
  postgres_thread: 'src/store/postgres/thread.ts',
};
/** The packages that a start of the service loads, more than a thousand files. */
const PACKAGES = [
  '@modelcontextprotocol/server',
  '@opentelemetry/api',
  'fastify',
  'kysely',
  'pg',
  'pino',
  'prom-client',
  'typebox',
  'typebox/compile',
  'typebox/format',
  'typebox/system',
];
const ENTRIES = { main: 'src/cli/program/program.ts', ...THREADS };

/**
 * Modules that our dependencies load only on demand, and that Convoke does not need: the native binding of pg,
 * Fastify's test client, and Fastify's compilers, in whose place Convoke has its own.
 */
const NEVER_LOADED = [
  'pg-native',
  '@fastify/ajv-compiler',
  '@fastify/fast-json-stringify-compiler',
  'light-my-request',
];

/**
 * undici has two parsers of HTTP responses, each with SIMD and without it. Each of these four files contains
 * WebAssembly as text, and undici loads one of them at the first push. In the bundle V8 would keep all four texts
 * twice, which takes 0.6 MiB. So the bundle does not contain the parsers: they are copied beside it, as files that are
 * loaded on demand.
 */
const PARSER = /[/\\]undici[/\\]lib[/\\](llhttp|milo)[/\\]([\w-]*simd[\w-]*|llhttp-wasm)\.js$/;

/** Removes everything that an earlier build left in `dist/`, and builds `dist/`. */
export async function bundle(): Promise<void> {
  await rm(DIST, { recursive: true, force: true });
  const bundled = await bundleEntries(ENTRIES, DIST);
  await bundleWayIn();
  await cp(join(ROOT, 'openapi.json'), join(DIST, 'openapi.json'));
  await buildIfStale();
  await cp(join(ROOT, 'web/dist'), join(DIST, 'pages'), {
    recursive: true,
    filter: (path) => !path.endsWith('.built-from'),
  });
  await writeFile(join(DIST, 'LICENSES.txt'), await licencesOf([...bundled, ...TOOLS_IN_PAGES]));
}

/**
 * Builds the threads of both engines alone, for tests: see test/support/bundled.ts.
 *
 * @returns the path of each thread in the bundle, by the path of its module in the sources
 */
export async function bundleThreads(dir: string): Promise<Record<string, string>> {
  await bundleEntries(THREADS, dir);
  return Object.fromEntries(Object.entries(THREADS).map(([name, path]) => [join(ROOT, path), join(dir, `${name}.js`)]));
}

/** @returns the names of the packages whose code is in the bundle */
/**
 * Builds each package that the service loads into one file, for tests: see test/support/bundled.ts. Of undici the
 * service loads 18 modules of hundreds, so it is not here.
 *
 * @returns the URL of each package in the bundle, by the name by which modules import it
 */
export async function bundlePackages(dir: string): Promise<Record<string, string>> {
  const entries = join(dir, 'entries');
  await mkdir(entries, { recursive: true });
  const input: Record<string, string> = {};
  for (const [i, name] of PACKAGES.entries()) {
    // A bundle of a CommonJS module has only the default export, so an entry names all exports.
    const exported = Object.keys((await import(name)) as object).filter((each) => each !== 'module.exports');
    input[`package_${i}`] = join(entries, `${i}.mjs`);
    await writeFile(join(entries, `${i}.mjs`), `export { ${exported.join(', ')} } from '${name}';\n`);
  }
  await bundleEntries(input, dir);
  return Object.fromEntries(PACKAGES.map((name, i) => [name, pathToFileURL(join(dir, `package_${i}.js`)).href]));
}

async function bundleEntries(input: Record<string, string>, dir: string): Promise<Set<string>> {
  const parsers = new Map<string, string>();
  const build = await rolldown({
    cwd: ROOT,
    input,
    platform: 'node',
    external: NEVER_LOADED,
    // On a busy machine rolldown warns that the plugins are slow, and a warning ends the build.
    checks: { bundlerTimings: false },
    plugins: [
      {
        name: 'parsers',
        resolveId(source, importer) {
          if (importer === undefined || !source.startsWith('.')) return null;
          const path = join(dirname(importer), source);
          const [, directory, name] = PARSER.exec(path) ?? [];
          if (directory === undefined) return null;
          const file = `undici-${directory}-${name}.cjs`;
          parsers.set(file, path);
          return { id: `./${file}`, external: true };
        },
      },
      {
        name: 'ascii',
        generateBundle(_options, files) {
          for (const file of Object.values(files)) if (file.type === 'chunk') file.code = ascii(file.code);
        },
      },
    ],
    onLog(level, { message }) {
      if (level !== 'debug') throw new Error(`the bundle: ${message}`);
    },
  });
  const { output } = await build.write({
    dir,
    format: 'esm',
    chunkFileNames: '[name]-[hash].js',
    // Keeps the comments that a licence demands. Keeps the names too, so that stack traces can be read.
    comments: { legal: true, annotation: false, jsdoc: false },
  });
  await build.close();
  for (const [file, path] of parsers) await cp(path, join(dir, file));
  if ('main' in input && parsers.size !== 4) throw new Error("the bundle: undici's parsers are elsewhere now");
  const paths = output.flatMap((file) => (file.type === 'chunk' ? file.moduleIds : []));
  return new Set(paths.flatMap((path) => packageOf(path) ?? []));
}

/**
 * Makes a source ASCII. A single character beyond Latin-1 makes V8 keep two bytes for every character of the source,
 * which would take 3 MiB more.
 */
function ascii(code: string): string {
  return code.replace(/[^\0-\x7f]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/**
 * Copies the entry, which every Node can load (see its file). In the copy, only the paths of the files that it loads
 * are different.
 */
async function bundleWayIn(): Promise<void> {
  let text = await readFile(join(ROOT, 'src/cli/main.ts'), 'utf8');
  for (const [from, to] of [
    ['./program/program.ts', './main.js'],
    ['../../package.json', '../package.json'],
  ] as const) {
    if (!text.includes(from)) throw new Error(`src/cli/main.ts does not name ${from}`);
    text = text.replaceAll(from, to);
  }
  const path = join(ROOT, PROGRAM_OF_PACKAGE);
  await writeFile(path, text);
  await chmod(path, 0o755);
}

/** The name (`name` or `@scope/name`) of the package that contains a path; null for a path of our own sources. */
function packageOf(path: string): string | null {
  return /.*[/\\]node_modules[/\\]((?:@[^/\\]+[/\\])?[^/\\]+)[/\\]/.exec(path)?.[1]?.replaceAll('\\', '/') ?? null;
}

/** The whole licences of all packages in the bundle, as each of them demands. */
async function licencesOf(names: string[]): Promise<string> {
  const parts: string[] = ['Convoke contains the following packages, each under its own licence.\n'];
  for (const name of [...new Set(names)].toSorted()) {
    const directory = join(MODULES, name);
    const { version, license, author } = JSON.parse(await readFile(join(directory, 'package.json'), 'utf8')) as {
      version: string;
      license: string;
      author?: string | { name: string };
    };
    const files = (await readdir(directory)).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file));
    const texts = await Promise.all(files.toSorted().map((file) => readFile(join(directory, file), 'utf8')));
    const by = typeof author === 'object' ? author.name : author;
    if (files.length === 0) texts.push(`By ${by ?? 'its authors'}; the package brings no text of its licence.`);
    parts.push(
      `${'='.repeat(80)}\n${name} ${version} (${license})\n\n${texts.map((text) => text.trim()).join('\n\n')}\n`,
    );
  }
  return parts.join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await mkdir(DIST, { recursive: true });
  await bundle();
}
