/**
 * The trace of a message by W3C Trace Context: what is read, what is ignored, and that no other value becomes a header.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isTrace, TRACESTATE_CHARS_MAX, traceHeaders, traceIds, traceOf } from '../../src/domain/trace_context.ts';

const PARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

test('a traceparent and a tracestate are carried as they are', () => {
  assert.equal(traceOf(PARENT, undefined), PARENT);
  assert.deepEqual(traceHeaders(PARENT), { traceparent: PARENT });
  const tracestate = 'rojo=00f067aa0ba902b7,congo=t61rc WkgMzE,tenant@vendor=1';
  assert.deepEqual(traceHeaders(traceOf(PARENT, tracestate)!), { traceparent: PARENT, tracestate });
  assert.deepEqual(traceIds(traceOf(PARENT, tracestate)!), {
    trace_id: '4bf92f3577b34da6a3ce929d0e0e4736',
    span_id: '00f067aa0ba902b7',
    flags: 1,
  });
});

test('a traceparent that cannot be read is no trace, whatever its tracestate', () => {
  const [version, trace, span, flags] = PARENT.split('-') as [string, string, string, string];
  for (const parent of [
    '',
    PARENT.toUpperCase(),
    `${PARENT} `,
    `${PARENT}-x`,
    `${PARENT},${PARENT}`,
    `${PARENT}, ${PARENT}`,
    `ff-${trace}-${span}-${flags}`,
    `${version}-${'0'.repeat(32)}-${span}-${flags}`,
    `${version}-${trace}-${'0'.repeat(16)}-${flags}`,
    `${version}-${trace}-${span}`,
    `${version}-${trace}-${span}-${flags}\r\nx: y`,
    `cc-${trace}-${span}-${flags}.what`,
  ])
    assert.equal(traceOf(parent, 'a=1'), null, parent);
  assert.equal(traceOf(undefined, 'a=1'), null);
});

test('of a later version that is taken which this version knows', () => {
  for (const later of [`cc${PARENT.slice(2)}`, `01${PARENT.slice(2)}-what-the-future-brings`])
    assert.equal(traceOf(later, undefined), PARENT);
});

test('a tracestate that cannot be read is left out; a long one loses its last members', () => {
  for (const state of ['', ' ', ',', 'a', 'A=1', 'a=é', 'a=1\r\nx: y', 'a=b=c', Array(33).fill('a=1').join()])
    assert.equal(traceOf(PARENT, state), PARENT, state);
  assert.equal(traceOf(PARENT, ' a=1 ,, b=2\t'), `${PARENT} a=1,b=2`);
  const member = `k=${'v'.repeat(198)}`;
  assert.equal(traceOf(PARENT, [member, member, member].join()), `${PARENT} ${member},${member}`);
});

test('whatever is given, the accepted value is short printable ASCII, and reading it again changes nothing', () => {
  const parents = fc.oneof(
    fc.constant(PARENT),
    fc.string(),
    fc.stringMatching(/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[a-z]*)?$/),
  );
  const states = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc
      .array(fc.stringMatching(/^[a-z][a-z0-9]{0,40}=[ -+\--<>-~]{0,60}$/), { maxLength: 9 })
      .map((members) => members.join(',')),
  );
  let taken = 0;
  fc.assert(
    fc.property(parents, states, (parent, state) => {
      const trace = traceOf(parent, state);
      if (trace === null) return;
      taken++;
      assert.match(trace, /^[ -~]+$/);
      assert.ok(isTrace(trace) && trace.length <= PARENT.length + 1 + TRACESTATE_CHARS_MAX);
      const { traceparent, tracestate } = traceHeaders(trace);
      assert.equal(traceOf(traceparent, tracestate), trace);
    }),
    { numRuns: 300, seed: 1 },
  );
  assert.ok(taken > 50, 'the inputs are not all nonsense');
});

test('nonsense in a row is no trace', () => {
  for (const text of ['', 'nonsense', `${PARENT} `, `${PARENT} nonsense`, `${PARENT}x`, `01${PARENT.slice(2)}`])
    assert.equal(isTrace(text), false, text);
  assert.ok(isTrace(PARENT) && isTrace(`${PARENT} a=1`));
});
