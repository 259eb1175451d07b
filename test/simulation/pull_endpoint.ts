/**
 * The pull route of one simulated node: the real handler (src/http/routes/pull.ts), with objects as requests and
 * responses. There are no checks of access, and no bytes on a wire. The code that hands out and gives back pushes,
 * counts results and forwards pulls is the real code.
 */
import type { IncomingMessage } from 'node:http';
import { FORWARDED_HEADER, type ForwardedPull } from '../../src/delivery/cluster/pull_forwarder.ts';
import type { App } from '../../src/http/context.ts';
import type { Standing } from '../../src/http/auth/standing.ts';
import { type PullContext, pullRoutes } from '../../src/http/routes/pull.ts';
import { EVERYTHING_ALLOWED } from '../../src/domain/access.ts';
import { Problem } from '../../src/domain/problem.ts';

/** A result, as a machine reports it. */
export interface Reported {
  delivery_id: string;
  attempt: number;
  status_code?: number;
  not_reached?: string;
  retry_after?: string;
  body?: string;
}

export interface PullBody {
  results: Reported[];
  max: number;
  wait_s: number;
  pull_id: string;
}

export interface Pulled {
  pushes: { delivery_id: string; attempt: number; headers: Record<string, string>; body: string }[];
  results: (Pick<Reported, 'delivery_id' | 'attempt'> & { became: 'counted' | 'late' | 'repeated' | 'unknown' })[];
}

export interface Answer {
  status: number;
  body: Pulled | null;
  /** Whether another node made the response, and this node passed it on. */
  is_passed_on: boolean;
}

/** A response that is written, or whose connection breaks first. */
class SimulatedResponse {
  closed = false;
  destroyed = false;
  headersSent = false;
  writableFinished = false;
  statusCode = 200;
  readonly req = { socket: { destroyed: false, setTimeout() {} } };
  readonly #answered = Promise.withResolvers<Answer>();
  readonly #listeners: (() => void)[] = [];

  on(_event: 'close', listener: () => void): void {
    this.#listeners.push(listener.bind(this));
  }

  once(event: 'close', listener: () => void): void {
    this.on(event, listener);
  }

  get answered(): Promise<Answer> {
    return this.#answered.promise;
  }

  answer(answer: Answer): void {
    this.headersSent = true;
    this.statusCode = answer.status;
    this.#answered.resolve(answer);
  }

  end(is_finished: boolean): void {
    if (this.closed) return;
    this.closed = true;
    this.destroyed = true;
    this.writableFinished = is_finished;
    for (const listener of this.#listeners) listener();
  }
}

/** One request at a node, and its connection. */
export interface Exchange {
  /** Resolves when the node has a response, which is not yet written. */
  answered: Promise<Answer>;
  /** Ends the exchange: the whole response left the node, or the connection broke before. */
  end(is_written: boolean): void;
}

/** Returns its reply when the response comes later, or never because the client has gone. */
type Handler = (request: unknown, reply: object) => Promise<Pulled | Answer | object>;

const answerOf = (body: Pulled): Answer => ({ status: 200, body, is_passed_on: false });
const refusalOf = (status: number): Answer => ({ status, body: null, is_passed_on: false });

/** What permits the pulls of a world, which has no keys that end. */
const LASTING: Pick<Standing, 'revocationReason'> = { revocationReason: () => null };

export class PullEndpoint {
  #handler: Handler = () => Promise.reject(new Error('the route registers its handler'));

  constructor(context: PullContext) {
    const app = {
      post: (_path: string, _shape: unknown, handler: Handler) => void (this.#handler = handler),
      connections: { waits: () => ({}), endsWait() {} },
      late_responses: {
        send: (response: SimulatedResponse, body: Pulled) => response.answer(answerOf(body)),
        refuse: (response: SimulatedResponse, { status }: Problem) => response.answer(refusalOf(status)),
      },
    };
    pullRoutes(app as unknown as App, context);
  }

  pull(instance_id: string, body: PullBody, is_forwarded: boolean, standing = LASTING): Exchange {
    const response = new SimulatedResponse();
    const request = {
      params: { instance_id },
      body,
      principal: EVERYTHING_ALLOWED,
      standing,
      headers: is_forwarded ? { [FORWARDED_HEADER]: '' } : {},
      raw: { socket: { setTimeout() {} } },
    };
    const reply = {
      raw: response,
      header() {},
      hijack: (): object => reply,
      code: (status: number) => ({ send: (from: Answer) => ({ ...from, status, is_passed_on: true }) }),
    };
    this.#handler(request, reply).then(
      (made) => {
        if (made !== reply) response.answer('status' in made ? made : answerOf(made as Pulled));
      },
      (error: unknown) => response.answer(refusalOf(error instanceof Problem ? error.status : 500)),
    );
    return {
      answered: response.answered,
      end: (is_written) => response.end(is_written),
    };
  }
}

/** Makes what the route gets as the response of the node that it forwarded to. */
export function responseOf(answer: Answer): IncomingMessage {
  return { ...answer, statusCode: answer.status, headers: {} } as unknown as IncomingMessage;
}

export type { ForwardedPull };
