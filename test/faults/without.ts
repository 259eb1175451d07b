/**
 * `node --import ./test/faults/without.ts` runs the service without a protection, to show what the protection prevents.
 * A protection is a piece of text that this replaces while its module loads. The variable WITHOUT names the protection.
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
    find: "const unsent = target.replies ? this.#replies.take(head, result, target.replier, isLost) : '';",
    replace:
      "const unsent = ''; setTimeout(() => void this.#replies.take(head, result, target.replier, isLost), 1_000);",
  },
  /**
   * Removes no protection. When the replies of a push are stored late, the push is never settled, so a test can kill the
   * process before the settlement.
   */
  'settled soon': {
    file: 'src/delivery/attempts/attempts.ts',
    find: 'void unsent.then((words) => end(words === null ? null : () => settle(words)));',
    replace: '',
  },
  'a key for each reply': {
    file: 'src/delivery/replies/replies.ts',
    find: 'key: `${delivery.delivery_id}:${place}`',
    replace: 'key: String(Math.random())',
  },
  'the lease of a result': {
    file: 'src/convoke.ts',
    find: 'takesPullsOf: (instance_id) => delivers(instance_id) && partitions.isLeaseValid(clock.now()),',
    replace: 'takesPullsOf: delivers,',
  },
  'a stop during the start': {
    file: 'src/cli/program/commands/serve.ts',
    find: 'await Promise.race([starting, over])',
    replace: 'await starting',
  },
} as const satisfies Record<string, Edit>;

export type Protection = keyof typeof PROTECTIONS;

const edits: Edit[] = (process.env['WITHOUT'] ?? '')
  .split(',')
  .filter((name) => name !== '')
  .map((name) => PROTECTIONS[name as Protection]);
if (edits.length > 0) {
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      const here = edits.filter(({ file }) => url.endsWith(file));
      if (here.length === 0) return loaded;
      let source =
        typeof loaded.source === 'string' ? loaded.source : Buffer.from(loaded.source as Uint8Array).toString();
      for (const { file, find, replace } of here) {
        const parts = source.split(find);
        assert.equal(parts.length, 2, `${JSON.stringify(find)} stands ${parts.length - 1} times in ${file}`);
        source = parts.join(replace);
      }
      return { ...loaded, source };
    },
  });
}
