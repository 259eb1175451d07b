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
} as const satisfies Record<string, Edit>;

const name = process.env['WITHOUT'] as keyof typeof PROTECTIONS | undefined;
if (name !== undefined) {
  const { file, find, replace } = PROTECTIONS[name];
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      if (!url.endsWith(file)) return loaded;
      const text =
        typeof loaded.source === 'string' ? loaded.source : Buffer.from(loaded.source as Uint8Array).toString();
      const parts = text.split(find);
      assert.equal(parts.length, 2, `${JSON.stringify(find)} stands ${parts.length - 1} times in ${file}`);
      return { ...loaded, source: parts.join(replace) };
    },
  });
}
