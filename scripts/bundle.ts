/**
 * Builds `dist/`, which is what is published: the commands and the service as one bundle; the threads of both engines and the
 * entry (`src/cli/main.ts`, which every Node can load) as files of their own, because they are started by their address; the
 * pages, the files of `/docs/`, and LICENSES.txt. It needs nothing but Node. A clone runs its TypeScript and needs no build.
 *
 * Three modules ask whether they end in `.ts` to know where they are: both `*_store.ts` and the one that serves the pages.
 *
 * Rolldown, because Vite brings it already, and the bundle takes a second. Names are kept and nothing is minified, so that a
 * stack shows where something went wrong.
 */
import { chmod, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { buildIfStale, TOOLS_IN_PAGES } from './web.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const DIST = join(ROOT, 'dist');
/** What `convoke` is in the package, seen from its root. */
export const PROGRAM_OF_PACKAGE = './dist/convoke.cjs';
const MODULES = join(ROOT, 'node_modules');

/** Modules that are started by their address are files of their own, and all of them lie beside each other. */
const ENTRIES = {
  main: 'src/cli/program/program.ts',
  sqlite_thread: 'src/store/sqlite/thread.ts',
  postgres_thread: 'src/store/postgres/thread.ts',
};

/** What dependencies load only when they are asked to: pg its binding, Fastify the compilers that ours replace, and its test client. */
const NEVER_LOADED = [
  'pg-native',
  '@fastify/ajv-compiler',
  '@fastify/fast-json-stringify-compiler',
  'light-my-request',
];

/** Builds it from nothing. */
export async function bundle(): Promise<void> {
  await rm(DIST, { recursive: true, force: true });
  const bundled = await bundleProgram();
  await bundleWayIn();
  await cp(join(ROOT, 'openapi.json'), join(DIST, 'openapi.json'));
  await buildIfStale();
  await cp(join(ROOT, 'web/dist'), join(DIST, 'pages'), {
    recursive: true,
    filter: (path) => !path.endsWith('.built-from'),
  });
  await writeFile(join(DIST, 'LICENSES.txt'), await licencesOf([...bundled, ...TOOLS_IN_PAGES]));
}

/** @returns the names of the packages whose code is in it */
async function bundleProgram(): Promise<Set<string>> {
  const build = await rolldown({
    cwd: ROOT,
    input: ENTRIES,
    platform: 'node',
    external: NEVER_LOADED,
    plugins: [
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
    dir: DIST,
    format: 'esm',
    chunkFileNames: '[name]-[hash].js',
    // What a licence demands stays where it stood; names stay as they are, for the sake of stacks.
    comments: { legal: true, annotation: false, jsdoc: false },
  });
  await build.close();
  const paths = output.flatMap((file) => (file.type === 'chunk' ? file.moduleIds : []));
  return new Set(paths.flatMap((path) => packageOf(path) ?? []));
}

/** V8 keeps a source at two bytes for each character when one of them is beyond Latin-1: 3 MiB of memory while the service runs. */
function ascii(code: string): string {
  return code.replace(/[^\0-\x7f]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Every Node can load it as it is (see there): only where the others lie is different. */
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

/** `@scope/name` of a path under node_modules; null for our own. */
function packageOf(path: string): string | null {
  return /.*[/\\]node_modules[/\\]((?:@[^/\\]+[/\\])?[^/\\]+)[/\\]/.exec(path)?.[1]?.replaceAll('\\', '/') ?? null;
}

/** The licences of what is in the bundle, whole: each of them asks for that. */
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
