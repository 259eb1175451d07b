import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'node:test';
import { GenerationCache } from '../../src/domain/generation_cache.ts';

const COUNT_MAX = 8;

test('what was set last is known as it was set last; of the rest at least the latest half, and never more than there may be', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(19), { maxLength: 200 }), (names) => {
      const recent = new GenerationCache<number>(COUNT_MAX);
      const last = new Map<number, number>();
      for (const [i, name] of names.entries()) {
        recent.set(String(name), i);
        last.delete(name);
        last.set(name, i);
        const known = [...last].filter(([each]) => recent.get(String(each)) !== undefined);
        assert.ok(known.length <= COUNT_MAX);
        for (const [each, value] of known) assert.equal(recent.get(String(each)), value);
        const latest = [...last.keys()].slice(-COUNT_MAX / 2);
        for (const each of latest) assert.ok(recent.get(String(each)) !== undefined);
      }
    }),
    { numRuns: 300 },
  );
});
