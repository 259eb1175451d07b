/**
 * An option of the SDK that is a number is checked when it is given. A comparison with NaN is always false, so a
 * tolerance or a limit that is NaN would let everything pass.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ConvokeClient,
  type ConvokeClientOptions,
  createAgentReceiver,
  createReceiver,
  serveAgent,
  verify,
  verifySignature,
} from '@convoke/sdk';

const SECRET = 'whsec_AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09o=';
const ADDRESS = { base_url: 'http://127.0.0.1:1' };

const client = (options: Partial<ConvokeClientOptions> = {}) => new ConvokeClient({ ...ADDRESS, ...options });
const receiver = (options: object) => createReceiver({ secret: SECRET, onPush: () => {}, ...options });
const agentReceiver = (options: object) => createAgentReceiver({ secret: SECRET, ...options }, () => null);
const agent = (options: object) => serveAgent({ ...ADDRESS, agent_id: 'anna', ...options }, () => null);

/** Each use of an option: with a value that it takes, the promise may still fail for another reason. */
const OPTIONS: Record<string, { use: (value: never) => unknown; too_small: number; also?: number[] }[]> = {
  tolerance_s: [
    { use: (tolerance_s) => verify('', {}, SECRET, { tolerance_s }), too_small: -1 },
    { use: (tolerance_s) => verifySignature('', {}, SECRET, { tolerance_s }), too_small: -1 },
    { use: (tolerance_s) => receiver({ tolerance_s }), too_small: -1 },
    { use: (tolerance_s) => agentReceiver({ tolerance_s }), too_small: -1 },
  ],
  body_bytes_max: [{ use: (body_bytes_max) => receiver({ body_bytes_max }), too_small: 0 }],
  remember_s: [{ use: (remember_s) => receiver({ remember_s }), too_small: -1 }],
  remembered_max: [{ use: (remembered_max) => receiver({ remembered_max }), too_small: -1 }],
  timeout_ms: [{ use: (timeout_ms) => client({ timeout_ms }), too_small: 0 }],
  send_attempts_max: [{ use: (send_attempts_max) => client({ send_attempts_max }), too_small: 0 }],
  gather_ms: [{ use: (gather_ms) => client({ gather_ms }), too_small: -1, also: [Infinity] }],
  wait_s: [{ use: (wait_s) => client().pullOnce('i', { wait_s }), too_small: -1 }],
  concurrency: [
    { use: (concurrency) => client().pull('i', { concurrency }), too_small: 0, also: [0.5, 1.5] },
    { use: (concurrency) => agent({ concurrency }), too_small: 0, also: [1.5] },
  ],
  turn_s: [{ use: (turn_s) => agent({ turn_s }), too_small: 0 }],
  max_age_s: [{ use: (max_age_s) => agent({ max_age_s }), too_small: -1 }],
};

for (const [name, uses] of Object.entries(OPTIONS)) {
  test(`${name} that is NaN, too small or no number is refused at once, by its name`, async () => {
    for (const { use, too_small, also = [] } of uses) {
      const refused = (value: unknown) => assert.rejects(async () => use(value as never), isRefusal(name, value));
      for (const value of [NaN, too_small, -Infinity, ...also, '5 min', true]) await refused(value);
    }
  });
}

const isRefusal = (name: string, value: unknown) => (error: Error) => {
  assert.match(error.message, new RegExp(`^${name} must be `));
  assert.equal(error.name, typeof value === 'number' ? 'RangeError' : 'TypeError');
  return true;
};

test('the smallest and the largest values of such options are taken', () => {
  client({ timeout_ms: 1, send_attempts_max: 1, gather_ms: 0 });
  client({ timeout_ms: Infinity, send_attempts_max: Infinity });
  receiver({ tolerance_s: 0, body_bytes_max: 1, remember_s: 0, remembered_max: 0 });
  receiver({ tolerance_s: Infinity, body_bytes_max: Infinity, remember_s: Infinity, remembered_max: Infinity });
  client().pull('i', { concurrency: Infinity });
});

test('a clock that says no time makes every push too old or too new', async () => {
  const headers = { 'webhook-id': 'dlv_1', 'webhook-timestamp': '1772357400', 'webhook-signature': 'v1,' };
  await assert.rejects(verify('{}', headers, SECRET, { now: () => NaN }), { reason: 'timestamp_too_old' });
});
