/** The few requests that the fault tests make. They do not use the SDK, because the tests also judge the SDK. */
import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { WAIT_MS_MAX, until } from '../support/wait.ts';
import type { Stored } from './checker.ts';

/** How long a sender waits for the response of a process that stands still. */
const SEND_MS_MAX = 10_000;
const LOOK_EVERY_MS = 100;
const DRAIN_MS_MAX = 120_000;

export interface Answered {
  status: number;
  body: { [field: string]: unknown };
}

interface Asked {
  body?: object;
  headers?: { [name: string]: string };
  timeout_ms?: number;
}

/** Makes a request. @throws the error of fetch, when no complete response arrived */
export async function ask(
  url: string,
  method: string,
  path: string,
  { body, headers, timeout_ms = WAIT_MS_MAX }: Asked = {},
): Promise<Answered> {
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
    body: body === undefined ? null : JSON.stringify(body),
    signal: AbortSignal.timeout(timeout_ms),
  });
  return { status: answer.status, body: (await answer.json()) as Answered['body'] };
}

/** Sends a message that contains this number. */
export function send(
  url: string,
  meeting_id: string,
  number: number,
  key?: string,
  timeout_ms = SEND_MS_MAX,
): Promise<Answered> {
  const headers = key === undefined ? {} : { 'idempotency-key': key };
  const path = `/api/v1/meetings/${meeting_id}/messages/`;
  return ask(url, 'POST', path, { body: { message: { number } }, headers, timeout_ms });
}

/** Registers each machine and joins its meetings. */
export async function enroll(url: string, origin: string, members: ReadonlyMap<string, string[]>): Promise<void> {
  for (const instance_id of new Set([...members.values()].flat())) {
    const webhook_url = `${origin}/${instance_id}`;
    const body = { instance_id, instance_name: instance_id, agent_ids: ['a'], webhook_url };
    const { status } = await ask(url, 'POST', '/api/v1/instances/register/', { body });
    assert.equal(status, 201);
  }
  for (const [meeting_id, instance_ids] of members) {
    for (const instance_id of instance_ids) {
      const body = { instance_id, meeting_id, agent_ids: ['a'] };
      const { status } = await ask(url, 'POST', '/api/v1/instances/join-meeting/', { body });
      assert.equal(status, 201);
    }
  }
}

/** Waits until no delivery is pending. */
export async function nothingPending(url: string): Promise<void> {
  const from_ms = performance.now();
  for (;;) {
    const pending = await firstPending(url);
    if (pending === null) return;
    assert.ok(performance.now() - from_ms < DRAIN_MS_MAX, `still pending: ${JSON.stringify(pending)}`);
    await pause(LOOK_EVERY_MS);
  }
}

/**
 * The newest delivery that is pending, or null. A call reads a part of the deliveries only: a page may be empty, and a
 * later page is not.
 */
async function firstPending(url: string): Promise<object | null> {
  for (let cursor = ''; ;) {
    const { body } = await ask(url, 'GET', `/api/v1/deliveries/?state=pending&limit=1${cursor}`);
    const [pending] = body['data'] as object[];
    if (pending !== undefined) return pending;
    if (body['next_cursor'] === null) return null;
    cursor = `&cursor=${encodeURIComponent(body['next_cursor'] as string)}`;
  }
}

/** Counts the deliveries in each state. */
export async function deliveriesByState(url: string): Promise<{ [state: string]: number }> {
  const count: { [state: string]: number } = {};
  let cursor: string | null = '';
  while (cursor !== null) {
    const query: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const { body } = await ask(url, 'GET', `/api/v1/deliveries/?limit=500${query}`);
    for (const { state } of body['data'] as { state: string }[]) count[state] = (count[state] ?? 0) + 1;
    cursor = body['next_cursor'] as string | null;
  }
  return count;
}

/** Every message of these meetings. */
export async function history(url: string, meeting_ids: Iterable<string>): Promise<Stored[]> {
  const stored: Stored[] = [];
  for (const meeting_id of meeting_ids) {
    for (let after_seq = 0, more = true; more;) {
      const path = `/api/v1/meetings/${meeting_id}/messages/?limit=500&after_seq=${after_seq}`;
      const { body } = await ask(url, 'GET', path);
      const page = body['data'] as { message_id: string; seq: number; message: { number: number } }[];
      for (const { message_id, seq, message } of page) {
        stored.push({ meeting_id, message_id, seq, number: message.number });
        after_seq = seq;
      }
      more = body['has_more'] === true;
    }
  }
  return stored;
}

/**
 * Sends messages until the service accepts one of them.
 * @returns how long that took, in milliseconds
 */
export async function acceptedAgain(url: string, sendOne: () => Promise<Answered>): Promise<number> {
  const from_ms = performance.now();
  const attempt = async (): Promise<number> => (await sendOne().catch(() => ({ status: 0 }))).status;
  await until(`a 201 from ${url}`, attempt, (status) => status === 201);
  return performance.now() - from_ms;
}
