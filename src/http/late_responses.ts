import type { ServerResponse } from 'node:http';
import type { Problem } from '../domain/problem.ts';
import type { Connections } from './intake/connections.ts';
import type { LargeResponses } from './intake/slow_readers.ts';
import { documentOf, headersOf } from './problems.ts';

/**
 * Writes the responses to requests that wait long. Their routes take these requests from the framework
 * (`reply.hijack()`): it holds some 5 KB in memory for each request that it has, and ten thousand pulls may wait.
 */
export class LateResponses {
  readonly #connections: Connections;
  readonly #large_responses: LargeResponses;

  constructor(connections: Connections, large_responses: LargeResponses) {
    this.#connections = connections;
    this.#large_responses = large_responses;
  }

  /** Responds with a value as JSON, or with Problem `overloaded` when too many large responses are not read yet. */
  send(response: ServerResponse, value: unknown): void {
    const document = JSON.stringify(value);
    const problem = this.#large_responses.admit(response, document);
    if (problem !== null) return this.refuse(response, problem);
    this.#end(response, 200, document, {
      'content-type': 'application/json; charset=utf-8',
      'x-content-type-options': 'nosniff',
      'content-length': String(Buffer.byteLength(document)),
    });
  }

  refuse(response: ServerResponse, problem: Problem): void {
    const document = documentOf(problem);
    this.#end(response, problem.status, document, headersOf(problem, document));
  }

  #end(response: ServerResponse, status: number, document: string, headers: Record<string, string>): void {
    const closes = this.#connections.closesAfter(response.req);
    response
      .writeHead(status, { ...headers, 'cache-control': 'no-store', ...(closes && { connection: 'close' }) })
      .end(document);
  }
}
