/**
 * `npm run test:packages`: tests the packages of `npm pack` in empty directories, as a new user would use them, with
 * every supported runtime. Words after `--` choose checks by their names. The first run installs the programs of other
 * projects that it needs.
 */
import assert from 'node:assert/strict';
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { pino } from 'pino';
import { readConfig } from '../../src/config/read_config.ts';
import { createConvoke } from '../../src/convoke.ts';
import { Visitor } from '../support/browser.ts';
import { PAGE_PATH, putPagesAt, type Used, useAllIn } from '../support/pages_elsewhere.ts';
import { run } from './run.ts';
import {
  bun,
  compiler,
  deno,
  node,
  NODES_OF_SDK,
  NODES_OF_SERVICE,
  NODES_ON_POSTGRES,
  type Runtime,
  TYPESCRIPTS,
} from './runtimes.ts';
import { demo, links, serve, tooOld, traces, unpacked } from './service.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PROGRAMS = fileURLToPath(new URL('programs/', import.meta.url));

interface Check {
  name: string;
  /** @returns what the check saw, in a few words */
  run: () => Promise<string>;
}

const work = await mkdtemp(join(tmpdir(), 'convoke-packages-'));
const data = join(work, 'data');
const { config } = readConfig({ flags: { port: '0', data } });
const service = await createConvoke(config, { log: pino({ level: 'silent' }) });
try {
  const tarballs = await pack();
  const wanted = process.argv.slice(2);
  const checks = [...serviceChecks(tarballs.convoke), ...sdkChecks(tarballs.sdk)].filter(({ name }) =>
    wanted.every((word) => name.includes(word)),
  );
  process.exitCode = (await all(checks)) ? 0 : 1;
} finally {
  await service.close();
  await rm(work, { recursive: true, force: true });
}

/** Runs one check after the other, and prints the table. */
async function all(checks: Check[]): Promise<boolean> {
  const rows: { name: string; held: boolean; seen: string }[] = [];
  for (const check of checks) {
    const row = await check.run().then(
      (seen) => ({ name: check.name, held: true, seen }),
      (error: unknown) => ({
        name: check.name,
        held: false,
        seen: error instanceof Error ? error.message : String(error),
      }),
    );
    rows.push(row);
    console.error(row.held ? `ok      ${row.name}` : `FAILED  ${row.name}\n${row.seen}`);
  }
  const width = Math.max(...rows.map(({ name }) => name.length));
  console.log();
  for (const { name, held, seen } of rows) {
    console.log(`${held ? 'ok    ' : 'FAILED'}  ${name.padEnd(width)}  ${seen.trim().split('\n', 1)[0]}`);
  }
  const failed = rows.filter(({ held }) => !held).length;
  console.log(`\n${rows.length - failed} of ${rows.length} hold`);
  return rows.length > 0 && failed === 0;
}

/** Packs both packages, as the release does. */
async function pack(): Promise<{ convoke: string; sdk: string }> {
  const before = await run(['git', 'status', '--porcelain'], { cwd: ROOT });
  const both = ['--workspaces', '--include-workspace-root'];
  const made = await run(['npm', 'pack', ...both, '--pack-destination', work], { cwd: ROOT });
  const [convoke, sdk] = ['convoke', 'convoke-sdk'].map(
    (name) => new RegExp(`^${name}-\\d\\S*\\.tgz$`, 'm').exec(made)?.[0],
  );
  if (convoke === undefined || sdk === undefined) throw new Error(`npm pack makes otherwise:\n${made}`);
  const after = await run(['git', 'status', '--porcelain'], { cwd: ROOT });
  if (before !== after) throw new Error(`npm pack leaves the clone changed:\n${after}`);
  return { convoke: join(work, convoke), sdk: join(work, sdk) };
}

/** An empty directory with installed packages. */
async function installed(name: string, packages: string[]): Promise<string> {
  const directory = join(work, name);
  await mkdir(directory);
  await writeFile(join(directory, 'package.json'), '{ "private": true, "type": "module" }\n');
  await run(['npm', 'install', '--no-audit', '--no-fund', ...packages], { cwd: directory });
  return directory;
}

function serviceChecks(tarball: string): Check[] {
  const local = once(() => installed('service', [tarball]));
  const prefix = join(work, 'global');
  const global = once(() => run(['npm', 'install', '--global', '--prefix', prefix, tarball], { cwd: work }));
  return [
    ...NODES_OF_SERVICE.map((version) => ({
      name: `service, npx convoke demo, Node ${version}`,
      run: async () => demo(await node(version), await local()),
    })),
    ...NODES_OF_SERVICE.map((version) => ({
      name: `service, convoke serve, Node ${version}`,
      run: async () => serve(await node(version), await local(), 'SQLite'),
    })),
    ...NODES_ON_POSTGRES.map((version) => ({
      name: `service, convoke serve on PostgreSQL, Node ${version}`,
      run: async () => serve(await node(version), await local(), 'PostgreSQL'),
    })),
    {
      name: 'service, its traces',
      run: async () => traces(await node(NODES_OF_SERVICE.at(-1)!), await local()),
    },
    {
      name: 'service, a global install',
      async run() {
        await global();
        return demo(await node(NODES_OF_SERVICE.at(-1)!), work, [join(prefix, 'bin/convoke')]);
      },
    },
    {
      name: 'service, unpacked without npm, run by nobody',
      run: async () => unpacked(await node(NODES_OF_SERVICE.at(-1)!), tarball, join(work, 'unpacked')),
    },
    {
      name: `service, a Node that is too old, ${NODES_OF_SDK[0]}`,
      run: async () => tooOld(await node(NODES_OF_SDK[0]!), await local()),
    },
    {
      name: 'service, nothing else is installed with it',
      async run() {
        const names = (await readdir(join(await local(), 'node_modules'))).filter((name) => !name.startsWith('.'));
        if (names.join() !== 'convoke') throw new Error(`installed with it: ${names}`);
        return 'one package';
      },
    },
    {
      name: 'service, the documents',
      run: async () => links(join(await local(), 'node_modules/convoke')),
    },
  ];
}

function sdkChecks(tarball: string): Check[] {
  const runtimes: (() => Promise<Runtime>)[] = [...NODES_OF_SDK.map((version) => () => node(version)), deno, bun];
  const names = [...NODES_OF_SDK.map((version) => `Node ${version}`), 'Deno', 'Bun'];
  const plain = once(() => installed('sdk-javascript', [tarball]));
  const strict = once(() => installed('sdk-typescript', [tarball, '@types/node@24.19.2']));
  return [
    ...runtimes.map((runtime, i) => ({
      name: `SDK, plain JavaScript, ${names[i]}`,
      async run() {
        const directory = await plain();
        await copyFile(join(PROGRAMS, 'send_and_receive.mjs'), join(directory, 'main.mjs'));
        const { command } = await runtime();
        return run([...command, 'main.mjs'], { cwd: directory, env: { CONVOKE: service.url } });
      },
    })),
    {
      name: 'SDK, plain JavaScript, a browser page',
      run: async () => inAPage(service.url, join(await plain(), 'node_modules/@convoke/sdk/dist')),
    },
    ...TYPESCRIPTS.flatMap((version) =>
      ['node16', 'nodenext', 'bundler'].map((resolution) => ({
        name: `SDK, strict TypeScript ${version}, ${resolution}`,
        async run() {
          const directory = await strict();
          await copyFile(join(PROGRAMS, 'strict.ts'), join(directory, 'main.ts'));
          await writeFile(join(directory, 'tsconfig.json'), JSON.stringify(strictest(resolution)));
          const { command } = await compiler(version);
          await run([...command, '-p', '.'], { cwd: directory });
          return 'it compiles, and what is wrong does not';
        },
      })),
    ),
  ];
}

/** Serves the files of the package as they are, because a page needs no bundler. */
async function inAPage(url: string, sdk: string): Promise<string> {
  const visitor = new Visitor();
  try {
    let used: Used | null = null;
    const allowed = /Failed to load resource/;
    await visitor.visit(url, { path: '/healthz', allowed }, async (page) => {
      await putPagesAt(page, url, { sdk });
      await page.goto(url + PAGE_PATH);
      used = await useAllIn(page, { base_url: url, api_key: undefined, name: 'tab' });
    });
    const wanted: Used = {
      pulled: ['Anybody there?'],
      refused: 'instance_does_not_exist',
      answer: 'You said: Good night',
    };
    assert.deepEqual(used, wanted);
    return `answered ${wanted.answer}`;
  } finally {
    await visitor.close();
  }
}

function strictest(resolution: string): object {
  return {
    compilerOptions: {
      strict: true,
      noUncheckedIndexedAccess: true,
      exactOptionalPropertyTypes: true,
      verbatimModuleSyntax: true,
      // With this setting the compiler also checks the declarations of the package.
      skipLibCheck: false,
      noEmit: true,
      target: 'es2022',
      types: ['node'],
      moduleResolution: resolution,
      module: resolution === 'bundler' ? 'es2022' : resolution,
    },
    files: ['main.ts'],
  };
}

function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}
