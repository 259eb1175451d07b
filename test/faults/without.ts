/**
 * `node --import ./test/faults/without.ts`: runs the service without a protection, to show what it protects from. A
 * protection is a piece of text that is replaced while its module is loaded; the variable WITHOUT names it.
 */
import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';

interface Edit {
  file: string;
  find: string;
  replace: string;
}

export const PROTECTIONS = {
  'stored before delivered': {
    file: 'src/delivery/attempts/attempts.ts',
    find: "const unsent = target.replies ? this.#replies.take(head, result, isLost) : '';",
    replace: "const unsent = ''; setTimeout(() => void this.#replies.take(head, result, isLost), 1_000);",
  },
  'idempotency key': {
    file: 'src/delivery/replies/reply_send.ts',
    find: 'idempotency: { ...idempotency, sender: SENDER },',
    replace: 'idempotency: null,',
  },
} as const satisfies Record<string, Edit>;

/** Results wait for this long before they are written: so each kill meets replies that are stored and not settled. */
const LATE: Edit = {
  file: 'src/delivery/attempts/settlements.ts',
  find: 'const LINGER_MS = 3;',
  replace: 'const LINGER_MS = 400;',
};

const name = process.env['WITHOUT'] as keyof typeof PROTECTIONS | undefined;
if (name !== undefined) {
  // Without the order of writes, what is settled late would be stored by then.
  const edits: readonly Edit[] = name === 'idempotency key' ? [PROTECTIONS[name], LATE] : [PROTECTIONS[name]];
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      const edit = edits.find(({ file }) => url.endsWith(file));
      if (edit === undefined) return loaded;
      const { file, find, replace } = edit;
      const text =
        typeof loaded.source === 'string' ? loaded.source : Buffer.from(loaded.source as Uint8Array).toString();
      const parts = text.split(find);
      assert.equal(parts.length, 2, `${JSON.stringify(find)} stands ${parts.length - 1} times in ${file}`);
      return { ...loaded, source: parts.join(replace) };
    },
  });
}
