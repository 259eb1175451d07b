import type { FastifyRequest } from 'fastify';
import { EXCHANGE, type Watched } from './connection.ts';

/**
 * For requests that wait long for their response: their body leaves memory, and counts no longer against the bytes of
 * bodies of all requests. Otherwise a few clients that wait with large bodies would keep those of all others out.
 */
export function letGoOfBody(request: FastifyRequest): void {
  request.body = undefined;
  request.json = null;
  (request.raw as Watched)[EXCHANGE]?.release?.();
}
