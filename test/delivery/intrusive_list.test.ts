import assert from 'node:assert/strict';
import fc from 'fast-check';
import { test } from 'node:test';
import { ListNode, IntrusiveList } from '../../src/delivery/intrusive_list.ts';

class Entry extends ListNode {
  readonly name: number;

  constructor(name: number) {
    super();
    this.name = name;
  }
}

test('a list keeps its order whatever enters and leaves, as a Set does, and an entry is on one list', () => {
  const steps = fc.array(fc.record({ entry: fc.nat(7), list: fc.nat(1), adds: fc.boolean() }), { maxLength: 60 });
  fc.assert(
    fc.property(steps, (log) => {
      const entries = Array.from({ length: 8 }, (_, name) => new Entry(name));
      const lists = [new IntrusiveList<Entry>(), new IntrusiveList<Entry>()];
      const sets = [new Set<Entry>(), new Set<Entry>()];
      for (const { entry: i, list: l, adds } of log) {
        const [entry, list, set] = [entries[i]!, lists[l]!, sets[l]!];
        if (adds) {
          for (const each of sets) each.delete(entry);
          set.add(entry);
          list.add(entry);
        } else {
          assert.equal(list.delete(entry), set.delete(entry));
        }
        for (const [k, each] of lists.entries()) {
          assert.deepEqual(
            each.toArray().map(({ name }) => name),
            [...sets[k]!].map(({ name }) => name),
          );
          assert.equal(each.size, sets[k]!.size);
          assert.equal(each.first, sets[k]!.values().next().value ?? null);
          assert.equal(each.has(entry), sets[k]!.has(entry));
        }
      }
    }),
    { numRuns: 500 },
  );
});

test('an entry that left the list refers to no later one', () => {
  const list = new IntrusiveList<Entry>();
  const [first, second, third] = [new Entry(1), new Entry(2), new Entry(3)];
  for (const entry of [first, second, third]) list.add(entry);
  list.delete(second);
  list.delete(first);
  for (const { list: of, earlier, later } of [first, second])
    assert.deepEqual({ of, earlier, later }, { of: null, earlier: null, later: null });
  assert.equal(list.first, third);
});
