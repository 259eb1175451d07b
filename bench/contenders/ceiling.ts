/**
 * The ceiling: undici's bare `dispatch` to the receivers, without intake, ids or signatures. The headers are fixed, and
 * the body has the size of a push. Each receiver gets one push at a time on each of its connections.
 */
import { Pool } from 'undici';
import { serveCommands } from '../load/channel.ts';
import { nowUs } from '../measure/figures.ts';
import { answering, type Fleet, memberOf } from '../load/fleet.ts';

export interface Flood {
  fleet: Fleet;
  connections: number;
  seconds: number;
}

const HEADERS = {
  'content-type': 'application/json',
  'user-agent': 'Convoke/bench',
  'webhook-id': 'dlv_01J0000000000000000000000',
  'webhook-timestamp': '1893456000',
  'webhook-signature': 'v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=',
  'idempotency-key': 'dlv_01J0000000000000000000000',
  'convoke-message-id': 'msg_01J0000000000000000000000',
  'convoke-attempt': '1',
};

const BODY_TEXT = 'The quick brown fox jumps over the lazy dog, and nobody in the meeting objects. '.repeat(4);

async function flood({ fleet, connections, seconds }: Flood): Promise<{ first_us: number; pushes: number }> {
  const first_us = nowUs();
  const end_us = first_us + seconds * 1e6;
  const pools: Pool[] = [];
  let pushes = 0;
  const floodOne = (path: string, pool: Pool, meeting_id: string): Promise<void> =>
    new Promise((resolve, reject) => {
      const next = (): void => {
        if (nowUs() >= end_us) return resolve();
        pushes++;
        pool.dispatch(
          { path, method: 'POST', headers: HEADERS, body: bodyFor(meeting_id) },
          {
            onRequestStart() {},
            onResponseStart() {},
            onResponseData() {},
            onResponseEnd: next,
            onResponseError: (_controller, error) => reject(error),
          },
        );
      };
      next();
    });
  const running: Promise<void>[] = [];
  for (let meeting = 0; meeting < fleet.meetings; meeting++) {
    for (let member = 0; member < answering(fleet); member++) {
      const { webhook_url, meeting_id } = memberOf(fleet, meeting, member);
      const { origin, pathname } = new URL(webhook_url);
      const pool = new Pool(origin, { connections, allowH2: false });
      pools.push(pool);
      for (let i = 0; i < connections; i++) running.push(floodOne(pathname, pool, meeting_id));
    }
  }
  await Promise.all(running);
  await Promise.all(pools.map((pool) => pool.destroy()));
  return { first_us, pushes };
}

/** The body of a push. It contains the time of sending, so that the receivers can measure the latency. */
function bodyFor(meeting_id: string): Buffer {
  return Buffer.from(
    `{"event":"new_message","meeting_id":"${meeting_id}","message":{"id":"msg-000000000","sent_at":"${String(nowUs()).padStart(16, '0')}","created_at":"2030-01-01T00:00:00.000Z","sender":"bench","text":"${BODY_TEXT}"},"target_agents":["a000000"],"timestamp":"2030-01-01T00:00:00.000Z"}`,
  );
}

export type Ceiling = typeof commands;

const commands = serveCommands({ flood });
