/**
 * `npm run test:python`: tests the Python SDK as people get it. It builds the packages, tries them in an environment
 * that has nothing else, and runs lint, both type checkers, and the tests with the real service. Words after `--` go to
 * pytest. sdk/python/requirements.txt pins all other packages that this needs, by digest. The first run after a change
 * of that file installs these packages into node_modules/.cache. CONVOKE_PYTHON names a Python other than python3.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { installPackage } from '../runtimes/packages.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SDK = join(ROOT, 'sdk/python');
const CACHE = join(ROOT, 'node_modules/.cache/python');
const PYTHON = process.env['CONVOKE_PYTHON'] ?? 'python3';
const PYRIGHT = 'pyright@1.1.414';
const OUTPUT_BYTES_MAX = 64 << 20;
const STEP_MS_MAX = 600_000;

/** What the script asks Python first: its version, and whether it can make environments. */
const PROBE = `
import sys
missing = [] if sys.version_info >= (3, 10) else ["Python 3.10 or later; this one is " + sys.version.split()[0]]
for module, package in (("venv", "venv (on Debian: apt install python3-venv)"), ("ensurepip", "pip for new environments (on Debian: apt install python3-venv)")):
    try:
        __import__(module)
    except ImportError:
        missing.append(package)
if missing:
    sys.exit("missing: " + "; ".join(missing))
print("%d.%d.%d" % sys.version_info[:3])
`;

/** A failed step; the message is its output. */
class StepFailed extends Error {}

async function run(command: string, args: string[], cwd = SDK, settings: NodeJS.ProcessEnv = {}): Promise<string> {
  const env = { ...process.env, PYTHONDONTWRITEBYTECODE: '1', PIP_DISABLE_PIP_VERSION_CHECK: '1', ...settings };
  try {
    const options = { cwd, env, maxBuffer: OUTPUT_BYTES_MAX, timeout: STEP_MS_MAX };
    const { stdout, stderr } = await promisify(execFile)(command, args, options);
    return stdout + stderr;
  } catch (error) {
    const { message, stdout = '', stderr = '' } = error as Error & { stdout?: string; stderr?: string };
    throw new StepFailed(stdout + stderr || message, { cause: error });
  }
}

/** A program of an environment. */
function programOf(environment: string, name: string): string {
  return process.platform === 'win32' ? join(environment, 'Scripts', `${name}.exe`) : join(environment, 'bin', name);
}

async function pythonVersion(): Promise<string> {
  try {
    return (await run(PYTHON, ['-c', PROBE], ROOT)).trim();
  } catch (error) {
    const why = (error as Error).message.trim();
    throw new StepFailed(
      `test:python needs Python 3.10 or later with venv and pip, as ${PYTHON} or CONVOKE_PYTHON.\n${why}`,
    );
  }
}

/**
 * Makes an environment with all packages of requirements.txt. An incomplete environment is made again from the start.
 * An environment is made in its final place, because its programs contain its path.
 */
async function environment(version: string): Promise<string> {
  const requirements = await readFile(join(SDK, 'requirements.txt'));
  const digest = createHash('sha256').update(requirements).digest('hex').slice(0, 16);
  const directory = join(CACHE, `${version}-${digest}`);
  const is_whole = join(directory, 'whole');
  if (existsSync(is_whole)) return directory;
  console.log(`installing what the tests need into ${directory}`);
  await rm(directory, { recursive: true, force: true });
  await mkdir(CACHE, { recursive: true });
  await run(PYTHON, ['-m', 'venv', directory], ROOT);
  const install = [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--require-hashes',
    '--only-binary',
    ':all:',
    '-r',
    'requirements.txt',
  ];
  await run(programOf(directory, 'python'), install);
  await mkdir(is_whole);
  return directory;
}

/** Builds both packages, checks them, and returns the wheel. */
async function build(tools: string, work: string): Promise<string> {
  const dist = join(work, 'dist');
  // pip builds the wheel from the sdist, as it does for people without a wheel. It works on a copy, because a build
  // leaves files behind.
  const source = join(work, 'source');
  await cp(SDK, source, {
    recursive: true,
    filter: (path) => !/__pycache__|\.egg-info|\.(mypy|ruff|pytest)_cache/.test(path),
  });
  await run(programOf(tools, 'python'), ['-m', 'build', '--no-isolation', '--outdir', dist, source]);
  const made = (await readdir(dist)).toSorted().map((name) => join(dist, name));
  await run(programOf(tools, 'python'), ['-m', 'twine', 'check', '--strict', ...made]);
  const sizes = await Promise.all(made.map(async (file) => `${basename(file)} ${(await stat(file)).size}`));
  console.log(`  ${sizes.join(', ')}`);
  return made.find((file) => file.endsWith('.whl'))!;
}

/**
 * Makes an environment with the wheel and the packages that pip installs for it, and nothing else. The packages have the
 * versions of requirements.txt, so a new release of one of them changes no result.
 */
async function installAlone(wheel: string, work: string): Promise<string> {
  const alone = join(work, 'alone');
  await run(PYTHON, ['-m', 'venv', alone], work);
  const versions = join(work, 'versions.txt');
  const pinned = (await readFile(join(SDK, 'requirements.txt'), 'utf8')).split('\n').filter((line) => /^\w/.test(line));
  await writeFile(versions, pinned.map((line) => line.replace(/ *\\$/, '')).join('\n'));
  await run(programOf(alone, 'python'), ['-m', 'pip', 'install', '--quiet', '-c', versions, wheel], work);
  const program = 'import convoke_agents, sys; print(convoke_agents.__version__, len(sys.modules) > 0)';
  await run(programOf(alone, 'python'), ['-W', 'error', '-c', program], work);
  return alone;
}

async function step(name: string, does: () => Promise<unknown>): Promise<void> {
  const from_ms = performance.now();
  try {
    await does();
  } catch (error) {
    if (!(error instanceof StepFailed)) throw error;
    console.log(`✖ ${name}\n${error.message}`);
    failed.push(name);
    return;
  }
  console.log(`✔ ${name} (${((performance.now() - from_ms) / 1000).toFixed(1)} s)`);
}

const failed: string[] = [];
const work = await mkdtemp(join(tmpdir(), 'convoke-python-'));
try {
  const version = await pythonVersion();
  console.log(`Python ${version}`);
  const tools = await environment(version);
  const tool = (name: string): string => programOf(tools, name);
  let wheel = '';
  let alone = '';
  await step('the packages build, and their descriptions are right', async () => (wheel = await build(tools, work)));
  await step('the wheel works alone', async () => (alone = await installAlone(wheel, work)));
  // The tests import the installed package, not the sources.
  const site = join(work, 'site');
  await run(tool('python'), ['-m', 'pip', 'install', '--quiet', '--no-deps', '--no-index', '--target', site, wheel]);
  await Promise.all([
    step('lint and format', async () => {
      await run(tool('ruff'), ['check', '--no-cache', '.']);
      await run(tool('ruff'), ['format', '--no-cache', '--check', '.']);
    }),
    step('mypy, strict', () => run(tool('mypy'), ['--cache-dir', join(CACHE, 'mypy')])),
    step('pyright, strict', async () => {
      const pyright = join(await installPackage(PYRIGHT), 'node_modules/pyright/index.js');
      await run(process.execPath, [pyright, '--pythonpath', tool('python'), '--project', SDK]);
    }),
  ]);
  // Some tests wait for seconds that the SDK counts, so no other program runs beside them.
  await step('tests', async () => {
    const settings = { PYTHONPATH: site, CONVOKE_NODE: process.execPath, CONVOKE_ALONE: programOf(alone, 'python') };
    const report = await run(
      tool('python'),
      ['-m', 'pytest', '-q', '--durations=5', ...process.argv.slice(2)],
      SDK,
      settings,
    );
    console.log(report.trim());
  });
} catch (error) {
  if (!(error instanceof StepFailed)) throw error;
  console.error(error.message);
  failed.push('set up');
} finally {
  await rm(work, { recursive: true, force: true });
}
console.log(failed.length === 0 ? 'all passed' : `failed: ${failed.join(', ')}`);
process.exitCode = failed.length === 0 ? 0 : 1;
