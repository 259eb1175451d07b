/**
 * Tests the recipes of the documents with the real runtimes: `npm run test:runtimes -- [NAME …]`. When a runtime is
 * needed, this installs a pinned version into `node_modules/.cache`. Runtimes run on loopback. A scripted model server
 * takes the place of the model, because no package contains a model.
 */
import { proveA2a } from './a2a.ts';
import { type Row, tableOf } from './conversation.ts';
import { proveLangGraphJs, proveLangGraphPython } from './langgraph.ts';
import { proveDify } from './dify.ts';
import { proveLlama } from './llama.ts';
import { proveN8n } from './n8n.ts';
import { proveHermes } from './hermes.ts';
import { proveOpenAi } from './openai.ts';
import { proveOpenClaw } from './openclaw.ts';
import { proveRunaway } from './runaway.ts';
import { proveConnect } from './openclaw_connect.ts';
import { proveHooks } from './openclaw_hooks.ts';

/** The result of the test of a runtime. */
export interface Proof {
  runtime: string;
  shown: readonly string[];
  /** The rows of the table in docs/runtimes.md. */
  rows?: readonly Row[];
}

/** Runtimes that run only when they are named, because they install three gigabytes. */
const LARGE = ['n8n'];

const PROOFS: Readonly<Record<string, readonly (() => Promise<Proof>)[]>> = {
  openclaw: [proveOpenClaw, proveConnect, proveHooks],
  runaway: [proveRunaway],
  hermes: [proveHermes],
  openai: [proveOpenAi],
  a2a: [proveA2a],
  dify: [proveDify],
  llama: [proveLlama],
  langgraph: [proveLangGraphJs, proveLangGraphPython],
  n8n: [proveN8n],
};

const named = process.argv.slice(2);
const names = named.length === 0 ? Object.keys(PROOFS).filter((name) => !LARGE.includes(name)) : named;
const rows: Row[] = [];
for (const name of names) {
  const proofs = PROOFS[name];
  if (proofs === undefined)
    throw new Error(`there is no runtime ${name}; choose from ${Object.keys(PROOFS).join(', ')}`);
  for (const prove of proofs) {
    const { runtime, shown, rows: shown_rows = [] } = await prove();
    rows.push(...shown_rows);
    console.log(`✔ ${runtime}\n${shown.map((line) => `  · ${line}`).join('\n')}`);
  }
}
if (rows.length > 0) console.log(tableOf(rows, new Date().toISOString().slice(0, 10)));
console.log(`${names.length} passed, 0 failed`);
// Ends the process even if something that a runtime left is still open.
process.exit();
