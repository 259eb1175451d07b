/**
 * Generators can make clients from openapi.json. The test lints the document, generates clients from the document of a
 * running service, compiles them strictly, and uses them for real calls. `npm run test:generators` installs a pinned
 * version of each generator once, into node_modules/.cache.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { delimiter, join, resolve } from 'node:path';
import { before, describe, test, type TestContext } from 'node:test';
import { promisify } from 'node:util';
import { startReceiver } from '../support/receiver.ts';
import { useService } from '../support/service.ts';

const TYPESCRIPT = ['typescript@5.9.3', '@types/node@24.19.2'];
const REDOCLY = '@redocly/cli@2.77.0';
const OPENAPI_TYPESCRIPT = ['openapi-typescript@7.13.0', 'openapi-fetch@0.17.0'];
const HEY_API = '@hey-api/openapi-ts@0.99.0';
const OPENAPI_PYTHON_CLIENT = ['openapi-python-client==0.29.1', 'mypy==2.4.1'];
const OAPI_CODEGEN = 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2';
const OAPI_RUNTIME = 'github.com/oapi-codegen/runtime v1.8.0';
const OPENAPI_GENERATOR = '7.16.0';

const ROOT = resolve(import.meta.dirname, '../..');
const CACHE = join(ROOT, 'node_modules/.cache/generators');
const PROGRAMS = join(import.meta.dirname, 'programs');
const OUTPUT_BYTES_MAX = 64 << 20;

/** Strict settings of the TypeScript compiler, as in a careful project. */
const TSCONFIG = {
  compilerOptions: {
    target: 'es2024',
    lib: ['es2024', 'dom', 'dom.iterable'],
    types: ['node'],
    module: 'nodenext',
    strict: true,
    noUncheckedIndexedAccess: true,
    noImplicitReturns: true,
    noUnusedLocals: true,
    outDir: 'out',
  },
};

/** What a program prints about the responses that it got. */
interface Seen {
  health: string;
  seq: number;
  contents: unknown[];
  code: string;
  backup?: string;
}

async function run(cwd: string, [command = '', ...args]: string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
  try {
    const options = { cwd, env: { ...process.env, ...env }, maxBuffer: OUTPUT_BYTES_MAX };
    const { stdout } = await promisify(execFile)(command, args, options);
    return stdout;
  } catch (error) {
    const { message, stdout = '' } = error as Error & { stdout?: string };
    throw new Error(`${message}\n${stdout}`, { cause: error });
  }
}

/** Whether the programs that a test needs are on this machine; skips the test when they are not. */
async function has(t: TestContext, ...programs: string[]): Promise<boolean> {
  for (const program of programs) {
    const asked = [program, program === 'go' ? 'version' : '--version'];
    const is_there = await run(ROOT, asked).then(
      () => true,
      () => false,
    );
    if (is_there) continue;
    console.error(`NOT RUN: ${t.name}: there is no ${program} on this machine`);
    t.skip(`there is no ${program}`);
    return false;
  }
  return true;
}

/** A directory that `install` fills, once. An interrupted installation starts again. */
async function installed(name: string, install: (directory: string) => Promise<unknown>): Promise<string> {
  const directory = join(CACHE, name.replaceAll(/[^\w.-]+/g, '_'));
  const mark = join(directory, 'installed');
  if (existsSync(mark)) return directory;
  await rm(directory, { recursive: true, force: true });
  await mkdir(directory, { recursive: true });
  await install(directory);
  await writeFile(mark, '');
  return directory;
}

/**
 * Installs packages of npm.
 * @returns the directory, whose node_modules/.bin has their programs
 */
function packages(...pinned: string[]): Promise<string> {
  return installed(pinned.join('_'), async (directory) => {
    await writeFile(join(directory, 'package.json'), '{ "private": true, "type": "module" }\n');
    await run(directory, ['npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund', '--save-exact', ...pinned]);
  });
}

const bin = (directory: string, program: string): string => join(directory, 'node_modules/.bin', program);

describe('openapi.json, with', () => {
  const service = useService();
  /** Makes a new directory for a test, with the document in it. */
  const workIn = async (t: TestContext): Promise<string> => {
    const work = join(CACHE, 'work', t.name.replaceAll(/[^\w.-]+/g, '_'));
    await rm(work, { recursive: true, force: true });
    await mkdir(work, { recursive: true });
    const { text } = await service.get('/openapi.json');
    await writeFile(join(work, 'openapi.json'), text);
    return work;
  };

  before(() => service.endOpenMode());

  /** Runs a client, which prints what it saw: an instance, a message, its history, and a problem. */
  async function assertWorks(t: TestContext, work: string, command: string[]): Promise<Seen> {
    const receiver = await startReceiver(t);
    const output = await run(work, command, {
      CONVOKE_URL: service.url,
      CONVOKE_API_KEY: service.token ?? '',
      WEBHOOK_URL: receiver.url,
    });
    const seen = JSON.parse(output) as Seen;
    const { health, seq, contents, code } = seen;
    const expected = { health: 'unknown', seq: 1, contents: ['Hello'], code: 'instance_does_not_exist' };
    assert.deepEqual({ health, seq, contents, code }, expected);
    const [push] = await receiver.count(1);
    assert.deepEqual((JSON.parse(push?.text ?? '') as { message: object }).message, { content: 'Hello', n: 1 });
    return seen;
  }

  /** Compiles a program in the directory of the generated files. */
  async function compile(work: string, from: string, program: string): Promise<string> {
    await copyFile(join(PROGRAMS, program), join(work, 'client.ts'));
    await writeFile(join(work, 'package.json'), '{ "private": true, "type": "module" }\n');
    await writeFile(join(work, 'tsconfig.json'), JSON.stringify(TSCONFIG));
    await symlink(join(from, 'node_modules'), join(work, 'node_modules'), 'junction');
    await run(work, [bin(from, 'tsc'), '-p', '.']);
    return join(work, 'out/client.js');
  }

  test('redocly lint: nothing to say under its recommended rules, but for slashes at the end', async (t) => {
    const from = await packages(REDOCLY);
    const work = await workIn(t);
    const config = { extends: ['recommended'], rules: { 'no-path-trailing-slash': 'off' } };
    await writeFile(join(work, 'redocly.yaml'), JSON.stringify(config));
    // The program also prints text before and after the report.
    const lint = [bin(from, 'redocly'), 'lint', 'openapi.json', '--format=json', '--config=redocly.yaml'];
    const output = await run(work, lint, { REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' });
    const { totals, problems } = JSON.parse(output.slice(output.indexOf('{'), output.lastIndexOf('}') + 1)) as {
      totals: { errors: number; warnings: number };
      problems: unknown[];
    };
    assert.deepEqual({ ...totals, problems }, { errors: 0, warnings: 0, ignored: 0, problems: [] });
  });

  test('openapi-typescript and openapi-fetch', async (t) => {
    const from = await packages(...OPENAPI_TYPESCRIPT, ...TYPESCRIPT);
    const work = await workIn(t);
    await run(work, [bin(from, 'openapi-typescript'), 'openapi.json', '-o', 'schema.d.ts']);
    await assertWorks(t, work, [process.execPath, await compile(work, from, 'openapi_fetch.ts')]);
  });

  test('@hey-api/openapi-ts', async (t) => {
    const from = await packages(HEY_API, ...TYPESCRIPT);
    const work = await workIn(t);
    await writeFile(join(work, 'tsconfig.json'), JSON.stringify(TSCONFIG));
    const input = ['-i', 'openapi.json', '-o', 'generated', '-c', '@hey-api/client-fetch'];
    await run(work, [process.execPath, join(from, 'node_modules/@hey-api/openapi-ts/bin/run.js'), ...input]);
    await assertWorks(t, work, [process.execPath, await compile(work, from, 'hey_api.ts')]);
  });

  test('openapi-python-client', async (t) => {
    if (!(await has(t, 'python3'))) return;
    const from = await installed(OPENAPI_PYTHON_CLIENT.join('_'), async (directory) => {
      await run(directory, ['python3', '-m', 'venv', '.']);
      await run(directory, ['bin/python', '-m', 'pip', 'install', '--quiet', ...OPENAPI_PYTHON_CLIENT]);
    });
    const work = await workIn(t);
    // The generator looks on the PATH for the program that formats its files.
    const env = { PATH: `${join(from, 'bin')}${delimiter}${process.env['PATH']}` };
    const options = ['--path', 'openapi.json', '--output-path', 'generated', '--meta', 'none', '--fail-on-warning'];
    await run(work, [join(from, 'bin/openapi-python-client'), 'generate', ...options], env);
    await copyFile(join(PROGRAMS, 'client.py'), join(work, 'client.py'));
    // mypy --strict complains about the generated files, whatever the document is.
    await run(work, [join(from, 'bin/mypy'), '--strict', '--follow-imports=silent', 'client.py'], env);
    const seen = await assertWorks(t, work, [join(from, 'bin/python'), 'client.py']);
    assert.equal(seen.backup, 'SQLite format 3');
  });

  test('oapi-codegen', async (t) => {
    if (!(await has(t, 'go'))) return;
    const work = await workIn(t);
    await mkdir(join(work, 'convoke'));
    await writeFile(join(work, 'go.mod'), `module client\n\ngo 1.24\n\nrequire ${OAPI_RUNTIME}\n`);
    await copyFile(join(PROGRAMS, 'main.go'), join(work, 'main.go'));
    const options = ['-generate', 'types,client', '-package', 'convoke', '-o', 'convoke/convoke.gen.go'];
    await run(work, ['go', 'run', OAPI_CODEGEN, ...options, 'openapi.json']);
    await run(work, ['go', 'mod', 'tidy']);
    await run(work, ['go', 'vet', './...']);
    await assertWorks(t, work, ['go', 'run', '.']);
  });

  test('openapi-generator validate', async (t) => {
    if (!(await has(t, 'java', 'mvn'))) return;
    const jar = `openapi-generator-cli-${OPENAPI_GENERATOR}.jar`;
    const from = await installed(`openapi-generator-${OPENAPI_GENERATOR}`, (directory) => {
      const artifact = `org.openapitools:openapi-generator-cli:${OPENAPI_GENERATOR}`;
      const copy = ['dependency:copy', `-Dartifact=${artifact}`, `-DoutputDirectory=${directory}`];
      return run(directory, ['mvn', '-q', '-B', ...copy]);
    });
    const work = await workIn(t);
    assert.match(
      await run(work, ['java', '-jar', join(from, jar), 'validate', '-i', 'openapi.json']),
      /No validation issues/,
    );
  });
});
