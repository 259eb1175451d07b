import type { FastifyRequest } from 'fastify';
import { EXCHANGE, type Watched } from './connection.ts';

/**
 * Drops the body of a request that waits long for its response, so that it no longer counts against the budget for
 * bodies. Otherwise a few waiting clients with large bodies would keep all others out.
 */
export function letGoOfBody(request: FastifyRequest): void {
  request.body = undefined;
  request.json = null;
  (request.raw as Watched)[EXCHANGE]?.body?.release();
}
