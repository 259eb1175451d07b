import { once } from 'node:events';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { connect as connectTcp, isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import type { PushInHand, PushResult } from '@convoke/sdk';
import { withoutSecrets } from '../../../../delivery/transport/push.ts';
import type { RuntimeRequest } from '../../../../domain/runtimes/runtime.ts';
import { http } from '../../../../node_http.ts';

const CONNECT_MS_MAX = 5_000;
/** How long to wait for the body. The status line has decided the outcome, so a body that stalls is taken as it is. */
const BODY_MS_MAX = 5_000;
/** The longest body of a result that the service accepts. */
export const BODY_BYTES_MAX = 64 * 1024;
/** Says in words why `is_cut` is set. */
export const cutInWords = (bytes_max = BODY_BYTES_MAX): string =>
  `the body of the response did not arrive whole, or was over ${bytes_max / 1024} KiB`;
/** The statuses that the service takes as a result. */
const STATUS_MIN = 200;
const STATUS_MAX = 599;
const PROBE_FIRST_MS = 100;
const PROBE_MS_MAX = 1_000;

/** The response of the runtime. */
export type LocalResponse = PushResult & {
  /** The body broke off, or was longer than the service accepts. */
  is_cut?: true;
};

/** The agent runtime on this machine, as an HTTP receiver. */
export class LocalRuntime {
  readonly #to: URL;
  /** The headers of this machine. Their values stay on it. */
  readonly headers: Readonly<Record<string, string>>;
  #is_reached = true;

  constructor(to: URL, headers: Record<string, string>) {
    this.#to = to;
    this.headers = headers;
  }

  /**
   * POSTs a push as the service signed it, and adds the headers of this machine. Each push has a connection of its own:
   * with a kept connection, nobody knows whether a runtime that ended had read the push.
   *
   * @param reply_by_ms until when the body is awaited, because it may have a reply, on the clock of `performance`; absent:
   * the body is for people only
   */
  post(
    { body, headers, signal }: Pick<PushInHand, 'body' | 'headers' | 'signal'>,
    reply_by_ms = 0,
  ): Promise<LocalResponse> {
    const bodyMs = () => Math.max(BODY_MS_MAX, reply_by_ms - performance.now());
    return this.send({ method: 'POST', url: this.#to.href, headers, body }, signal, bodyMs);
  }

  /**
   * Sends a request, with the headers of this machine added.
   *
   * @param bodyMs returns how long the body of the response may take; called when its head is there
   * @param bytes_max the most bytes of the body that are read
   */
  async send(
    {
      method,
      url,
      headers: given,
      body: text,
    }: Pick<RuntimeRequest, 'method' | 'url' | 'body'> & Pick<PushInHand, 'headers'>,
    signal: AbortSignal,
    bodyMs: () => number,
    bytes_max = BODY_BYTES_MAX,
  ): Promise<LocalResponse> {
    const body = Buffer.from(text);
    const length = body.length > 0 ? { 'content-length': body.length } : {};
    const headers = { ...given, ...this.headers, ...length };
    const to = new URL(url);
    const request = to.protocol === 'https:' ? httpsRequest : http.request;
    const outgoing = request(to, { method, agent: false, headers, signal });
    const connection = watchConnection(outgoing, madeBy(to.protocol));
    try {
      outgoing.end(body);
      const response = await responseTo(outgoing);
      this.#is_reached = true;
      const { statusCode: status = 0 } = response;
      if (status < STATUS_MIN || status > STATUS_MAX) {
        const what = `the runtime answered ${status}; a result has a status from ${STATUS_MIN} to ${STATUS_MAX}`;
        return { status_code: 502, body: `${this.#to.origin}: ${what}` };
      }
      return this.#withoutSecrets(await resultOf(response, bodyMs(), bytes_max));
    } catch (error) {
      const why = reasonOf(error);
      if (!connection.is_made) {
        // An aborted request shows nothing about the runtime.
        this.#is_reached &&= signal.aborted;
        return { not_reached: why };
      }
      const what = signal.aborted ? 'no response in time' : `the connection broke: ${why}`;
      return { status_code: signal.aborted ? 504 : 502, body: `${this.#to.origin}: ${what}` };
    } finally {
      clearTimeout(connection.timer);
      outgoing.destroy();
    }
  }

  /** A success is the answer of an agent, and stays as it is. Any other body is for people, and goes to the service. */
  #withoutSecrets(result: LocalResponse): LocalResponse {
    if (!('status_code' in result) || result.body === undefined || result.status_code < 300) return result;
    return { ...result, body: withoutSecrets(result.body, this.headers, result.is_cut === true) };
  }

  /** Whether something listened at the last push. */
  get is_reached(): boolean {
    return this.#is_reached;
  }

  /**
   * Resolves when something listens. Tries at once, after 0.1 s, and then after twice as long each time, up to 1 s: on
   * the same machine a try costs almost nothing. Rejects when aborted.
   *
   * @param onWait is called with the reason when there is no connection at first
   */
  async listens(signal: AbortSignal, onWait: (why: string) => void): Promise<void> {
    for (let failures = 0; ; failures++) {
      const why = await this.#refusal(signal);
      if (why === null) break;
      if (failures === 0) onWait(why);
      const pause_ms = Math.min(PROBE_FIRST_MS * 2 ** Math.min(failures, 20), PROBE_MS_MAX);
      await pause(pause_ms, undefined, { signal });
    }
    this.#is_reached = true;
  }

  /**
   * Why no connection is possible; null: one is. With https this also tries TLS: with an invalid certificate, every
   * push would be handed back.
   */
  async #refusal(signal: AbortSignal): Promise<string | null> {
    signal.throwIfAborted();
    const { hostname, port, protocol } = this.#to;
    const host = hostname.replace(/^\[(.*)\]$/, '$1');
    const is_tls = protocol === 'https:';
    const to = { host, port: Number(port) || (is_tls ? 443 : 80), timeout: CONNECT_MS_MAX };
    const socket = is_tls ? connectTls({ ...to, servername: isIP(host) === 0 ? host : '' }) : connectTcp(to);
    socket.on('timeout', () => socket.destroy(new Error(`no connection within ${CONNECT_MS_MAX / 1000} s`)));
    try {
      await once(socket, madeBy(protocol), { signal });
      return null;
    } catch (error) {
      signal.throwIfAborted();
      return reasonOf(error);
    } finally {
      socket.destroy();
    }
  }
}

/** The event of a socket whose connection is made. */
function madeBy(protocol: string): 'connect' | 'secureConnect' {
  return protocol === 'https:' ? 'secureConnect' : 'connect';
}

function watchConnection(outgoing: ClientRequest, made: 'connect' | 'secureConnect') {
  const connection = {
    is_made: false,
    timer: setTimeout(
      () => outgoing.destroy(new Error(`no connection within ${CONNECT_MS_MAX / 1000} s`)),
      CONNECT_MS_MAX,
    ),
  };
  outgoing.once('socket', (socket) => {
    socket.once(made, () => {
      connection.is_made = true;
      clearTimeout(connection.timer);
    });
  });
  return connection;
}

/**
 * Waits for the response. A listener for `upgrade` is needed: without it, Node closes the connection after a 101 and
 * emits nothing more. Then the request would never end, not even when it is aborted.
 */
async function responseTo(outgoing: ClientRequest): Promise<IncomingMessage> {
  const either = Promise.race([once(outgoing, 'response'), once(outgoing, 'upgrade')]);
  const [response, upgraded] = (await either) as [IncomingMessage, Duplex?];
  upgraded?.destroy();
  return response;
}

async function resultOf(response: IncomingMessage, body_ms_max: number, bytes_max: number): Promise<LocalResponse> {
  const { statusCode: status_code = 502, headers } = response;
  const { body, is_cut } = await readBody(response, body_ms_max, bytes_max);
  const retry_after = headers['retry-after'];
  return {
    status_code,
    ...(retry_after !== undefined && { retry_after }),
    ...(body !== '' && { body }),
    ...(is_cut && { is_cut }),
  };
}

/** Reads as much of the body as arrives in time. */
async function readBody(
  response: IncomingMessage,
  ms_max: number,
  bytes_max: number,
): Promise<{ body: string; is_cut: boolean }> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const timer = setTimeout(() => response.destroy(), ms_max);
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > bytes_max) break;
    }
  } catch {
    // The body is incomplete. For a push of the specification the status line alone decides the result.
  } finally {
    clearTimeout(timer);
  }
  return { body: Buffer.concat(chunks).toString(), is_cut: bytes > bytes_max || !response.complete };
}

/** When a connection to several addresses fails, the error has no text of its own, but one for each address. */
function reasonOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(reasonOf).join(', ');
  return error instanceof Error ? error.message : String(error);
}
