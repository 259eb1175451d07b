/**
 * Proves the recipes of the documents on the real runtimes: `npm run test:runtimes -- [NAME …]`. Each runtime is installed
 * on demand into `node_modules/.cache`, pinned, and runs on loopback. A scripted model server stands for the model, because
 * a model is what no package brings.
 */
import { proveOpenClaw } from './openclaw.ts';
import { proveConnect } from './openclaw_connect.ts';

/** What was shown of a runtime, a line of the table each. */
export interface Proof {
  runtime: string;
  shown: readonly string[];
}

const PROOFS: Readonly<Record<string, readonly (() => Promise<Proof>)[]>> = { openclaw: [proveOpenClaw, proveConnect] };

const named = process.argv.slice(2);
const names = named.length === 0 ? Object.keys(PROOFS) : named;
for (const name of names) {
  const proofs = PROOFS[name];
  if (proofs === undefined)
    throw new Error(`there is no runtime ${name}; choose from ${Object.keys(PROOFS).join(', ')}`);
  for (const prove of proofs) {
    const { runtime, shown } = await prove();
    console.log(`✔ ${runtime}\n${shown.map((line) => `  · ${line}`).join('\n')}`);
  }
}
console.log(`${names.length} passed, 0 failed`);
// Nothing of a runtime may keep this process alive.
process.exit();
