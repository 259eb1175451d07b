import type { FastifyRequest } from 'fastify';
import { EXCHANGE, type Watched } from './connection.ts';

/**
 * Drops the body of a request, so that the body no longer counts against the budget for bodies. Called when the
 * response is made. A route whose requests wait long calls this function when the wait begins: otherwise a few waiting
 * clients with large bodies would keep all other clients out.
 */
export function letGoOfBody(request: FastifyRequest): void {
  request.body = undefined;
  request.json = null;
  (request.raw as Watched)[EXCHANGE]?.body?.release();
}

/** How many bytes of the body count against the budget for bodies. */
export function bodyBytesOf(request: FastifyRequest): number {
  return (request.raw as Watched)[EXCHANGE]?.body?.bytes ?? 0;
}
