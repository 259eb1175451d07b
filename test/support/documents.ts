import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';

const ROOT = new URL('../../', import.meta.url);

/** The blocks of code in a document that a comment `<!-- test: NAME -->` marks, by name. */
export async function blocksOf(document: string): Promise<Map<string, string[]>> {
  const markdown = await readFile(new URL(document, ROOT), 'utf8');
  const blocks = new Map<string, string[]>();
  for (const [, name = '', block = ''] of markdown.matchAll(/<!-- test: (.+) -->\n\n```\w+\n([^]*?)\n```/g)) {
    blocks.set(name, [...(blocks.get(name) ?? []), block]);
  }
  assert.equal(
    [...blocks.values()].flat().length,
    markdown.split('<!-- test:').length - 1,
    `each mark of ${document} is read`,
  );
  return blocks;
}

export function blockOf(blocks: Map<string, string[]>, name: string): string {
  const [block, ...more] = blocks.get(name) ?? [];
  assert(block !== undefined && more.length === 0, `there is one block marked ${name}`);
  return block;
}
