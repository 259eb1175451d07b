/** Senders that make load, and note the response to each send. */
import { setTimeout as pause } from 'node:timers/promises';
import { until } from '../support/wait.ts';
import { send } from './api.ts';
import type { Sent, SendResult } from './checker.ts';

/**
 * The pause between a refusal and the next send, so that a missing service does not get ten thousand sends a second.
 */
const REFUSED_PAUSE_MS = 20;

/** The error codes of fetch when there was no connection, so that nothing was sent. */
const NOT_CONNECTED = new Set(['ECONNREFUSED', 'UND_ERR_CONNECT_TIMEOUT']);

export class Speakers {
  readonly sent: Sent[] = [];
  /** How many responses had each status. */
  readonly statuses = new Map<number, number>();
  /** The URLs of the service. They change when the service starts again. */
  urls: string[];
  /** The pause between two sends of one sender; with 0 the next send follows the response at once. */
  pause_ms = 0;
  /**
   * Whether a message that got a 503 may be stored. When the service lost the database during the call, it does not
   * know whether the message is stored.
   */
  is_503_in_doubt = false;
  #numbers = 0;
  #tries = 0;
  #is_ending = false;
  readonly #speaking: Promise<unknown>;

  set url(url: string) {
    this.urls = [url];
  }

  /**
   * Starts two senders in each meeting. Without a response, one gives up the send, the other repeats it with its key.
   */
  constructor(url: string, meeting_ids: Iterable<string>) {
    this.urls = [url];
    this.#speaking = Promise.all(
      [...meeting_ids].flatMap((meeting_id) => [this.#speak(meeting_id, false), this.#speak(meeting_id, true)]),
    );
  }

  /** Waits until the service has accepted so many more sends. */
  async more(sends: number): Promise<void> {
    const accepted = (): number => this.statuses.get(201) ?? 0;
    const wanted = accepted() + sends;
    await until('load', accepted, (count) => count >= wanted);
  }

  /** Starts no more sends, and waits for those in flight. */
  async end(): Promise<void> {
    this.#is_ending = true;
    await this.#speaking;
  }

  async #speak(meeting_id: string, insistent: boolean): Promise<void> {
    while (!this.#is_ending) {
      const number = ++this.#numbers;
      const sent: Sent = { number, meeting_id, result: 'unknown', message_id: null, seq: null, accepted: null };
      this.sent.push(sent);
      sent.result = await this.#try(sent, insistent);
      if (insistent) await this.#insist(sent);
      if (sent.result !== 'ok') await pause(REFUSED_PAUSE_MS);
      else if (this.pause_ms > 0) await pause(this.pause_ms);
    }
  }

  /**
   * Repeats a send without a response until it is accepted: a refusal does not say whether the first try was stored.
   */
  async #insist(sent: Sent): Promise<void> {
    while (sent.result === 'unknown' && !this.#is_ending) {
      await pause(REFUSED_PAUSE_MS);
      if ((await this.#try(sent, true)) !== 'ok') continue;
      // Maybe the first try stored the message. So this response does not prove that the process made a commit now.
      Object.assign(sent, { result: 'ok', accepted: null });
    }
  }

  async #try(sent: Sent, insistent: boolean): Promise<SendResult> {
    try {
      const key = insistent ? `key-${sent.number}` : undefined;
      const url = this.urls[this.#tries++ % this.urls.length] as string;
      const from_ms = Date.now();
      const { status, body } = await send(url, sent.meeting_id, sent.number, key);
      this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1);
      if (status === 503 && (this.is_503_in_doubt || String(body['detail']).includes('IN_DOUBT'))) return 'unknown';
      if (status !== 201) return 'failed';
      Object.assign(sent, { message_id: body['message_id'], seq: body['seq'], accepted: { url, from_ms } });
      return 'ok';
    } catch (error) {
      const { code } = ((error as Error).cause ?? {}) as { code?: string };
      return code !== undefined && NOT_CONNECTED.has(code) ? 'failed' : 'unknown';
    }
  }
}
