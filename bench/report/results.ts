/** Writes each run as JSON, and updates the results that the repository keeps. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { markdownOf, type ScenarioResult } from './report.ts';

interface Results {
  scenarios: ScenarioResult[];
}

const DIRECTORY = new URL('../results/', import.meta.url);
const SAVED = new URL('saved.json', DIRECTORY);
const DOCUMENT = new URL('../../docs/benchmarks.md', import.meta.url);
const TABLES = /(<!-- results -->\n)[^]*?(<!-- end of results -->)/;

/**
 * Writes a run to a file. With `save`, the scenarios of the run also replace their previous results in
 * bench/results/saved.json and in docs/benchmarks.md.
 *
 * @returns the path of the file of the run
 */
export async function writeResults(scenarios: ScenarioResult[], save: boolean): Promise<string> {
  await mkdir(DIRECTORY, { recursive: true });
  const results: Results = { scenarios };
  const name = `${new Date().toISOString().slice(0, 19).replaceAll(':', '')}.json`;
  const file = fileURLToPath(new URL(name, DIRECTORY));
  await writeFile(file, `${JSON.stringify(results, null, 2)}\n`);
  if (save) await saveResults(results);
  return file;
}

async function saveResults({ scenarios }: Results): Promise<void> {
  const previous = await readFile(SAVED, 'utf8').then(
    (text) => (JSON.parse(text) as Results).scenarios,
    () => [],
  );
  const names = new Set(scenarios.map(({ name }) => name));
  const kept = [...previous.filter(({ name }) => !names.has(name)), ...scenarios];
  kept.sort((a, b) => (a.name < b.name ? -1 : 1));
  await writeFormatted(SAVED, JSON.stringify({ scenarios: kept } satisfies Results));
  const tables = kept.map(markdownOf).join('\n\n');
  const document = await readFile(DOCUMENT, 'utf8');
  await writeFormatted(
    DOCUMENT,
    document.replace(TABLES, (_, begin, end) => `${begin}\n${tables}\n${end}`),
  );
}

async function writeFormatted(url: URL, text: string): Promise<void> {
  const filepath = fileURLToPath(url);
  await writeFile(url, await format(text, { ...(await resolveConfig(filepath)), filepath }));
}
