/**
 * Turns a workspace into the published package, for as long as `npm pack` reads it: `prepack` runs this with the name
 * of the workspace, `postpack` with `restore`. A clone runs its TypeScript, but Node runs no TypeScript under
 * node_modules. So the package.json in the package differs from the package.json of the clone.
 *
 * After an interrupted pack, the next pack or `node scripts/pack.ts restore` puts the files of the clone back.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, globSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundle, PROGRAM_OF_PACKAGE } from './bundle.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** For each path, what a pack wrote and what was there before; null for a file that was not there. */
const KEPT = join(ROOT, 'node_modules/.cache/convoke/before-pack.json');

interface Manifest {
  name: string;
  version: string;
  description: string;
  license: string;
  /** Absent until the project has a public repository. */
  repository?: { type: string; url: string };
  type: string;
  engines: object;
  files: string[];
  exports: Record<string, string>;
  private?: true;
  scripts?: object;
}

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const manifestOf = (path: string): Manifest => JSON.parse(read(path)) as Manifest;

interface Replaced {
  before: string | null;
  packed: string;
}

/** The text of a file of the clone; null when there is none. */
const textOf = (path: string): string | null => (existsSync(join(ROOT, path)) ? read(path) : null);

/** Writes files into the clone, and keeps the previous contents. */
function put(texts: Record<string, string>): void {
  const kept = Object.entries(texts).map(([path, packed]) => [path, { before: textOf(path), packed }] as const);
  mkdirSync(dirname(KEPT), { recursive: true });
  writeFileSync(KEPT, JSON.stringify(Object.fromEntries(kept)));
  for (const [path, text] of Object.entries(texts)) writeFileSync(join(ROOT, path), text);
}

function restore(): void {
  if (!existsSync(KEPT)) return;
  const kept = JSON.parse(readFileSync(KEPT, 'utf8')) as Record<string, Replaced>;
  for (const [path, { before, packed }] of Object.entries(kept)) {
    // Does not touch a file that somebody has changed since the pack.
    if (textOf(path) !== packed) continue;
    if (before === null) rmSync(join(ROOT, path));
    else writeFileSync(join(ROOT, path), before);
  }
  rmSync(KEPT);
}

const SDK = 'sdk/typescript';

function packSdk(): void {
  rmSync(join(ROOT, SDK, 'dist'), { recursive: true, force: true });
  execFileSync(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', SDK], { cwd: ROOT });
  // tsc rewrites the imports in JavaScript, but not those in declarations.
  for (const file of readdirSync(join(ROOT, SDK, 'dist'))) {
    if (!file.endsWith('.d.ts')) continue;
    const path = `${SDK}/dist/${file}`;
    writeFileSync(join(ROOT, path), read(path).replaceAll(/(from '\.\/\w+)\.ts'/g, "$1.js'"));
  }
  const { exports, private: _, scripts: __, ...manifest } = manifestOf(`${SDK}/package.json`);
  const { version, repository } = manifestOf('package.json');
  const built = Object.entries(exports).map(([name, source]) => {
    const file = source.replace('./src/', './dist/').replace(/\.ts$/, '');
    return [name, { types: `${file}.d.ts`, default: `${file}.js` }] as const;
  });
  const packed = {
    ...manifest,
    version,
    ...(repository && { repository: { ...repository, directory: SDK } }),
    types: './dist/index.d.ts',
    exports: { ...Object.fromEntries(built), './package.json': './package.json' },
    sideEffects: false,
  };
  put({ [`${SDK}/package.json`]: json(packed), [`${SDK}/LICENSE`]: read('LICENSE') });
}

/** The package has no dependencies, because the bundle contains everything that the service needs. */
async function packConvoke(): Promise<void> {
  await bundle();
  const { name, version, description, license, repository, type, engines, files } = manifestOf('package.json');
  const packed = {
    name,
    version,
    description,
    license,
    repository,
    type,
    engines,
    files,
    bin: { convoke: PROGRAM_OF_PACKAGE },
    exports: { './package.json': './package.json' },
  };
  const shipped = new Set(['README.md', 'LICENSE', ...globSync(files, { cwd: ROOT }).flatMap(filesBelow)]);
  const documents = [...shipped].filter((path) => path.endsWith('.md'));
  const texts = documents.map((path) => [path, withoutLooseEnds(path, read(path), shipped)] as const);
  const changed = texts.filter(([path, text]) => text !== read(path));
  put({ 'package.json': json(packed), ...Object.fromEntries(changed) });
}

function filesBelow(path: string): string[] {
  if (!statSync(join(ROOT, path)).isDirectory()) return [path];
  return readdirSync(join(ROOT, path)).flatMap((entry) => filesBelow(posix.join(path, entry)));
}

/** A document without pictures and without links to files that only the repository has. */
function withoutLooseEnds(path: string, markdown: string, shipped: ReadonlySet<string>): string {
  const is_there = (link: string): boolean => {
    const [target = ''] = link.split('#');
    return /^https?:/.test(link) || target === '' || shipped.has(posix.join(posix.dirname(path), target));
  };
  return (
    markdown
      .replaceAll(/<picture>[^]*?<\/picture>\n+/g, '')
      // Removes tables that contain only pictures, with their header rows.
      .replaceAll(/^\|.*\n\|[-| ]+\|\n(?:\|(?: *!\[[^\]]*\]\([^)]+\.png\) *\|)+\n+)/gm, '')
      .replaceAll(/!\[[^\]]*\]\(([^)]+)\)\n*/g, (image, link: string) => (is_there(link) ? image : ''))
      .replaceAll(/(?<!!)\[([^\]]+)\]\(([^)]+)\)/g, (whole, words: string, link: string) =>
        is_there(link) ? whole : words,
      )
  );
}

function json(value: object): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

restore();
const [what = ''] = process.argv.slice(2);
if (what === 'sdk') packSdk();
if (what === 'convoke') await packConvoke();
