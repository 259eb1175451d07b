import type { FastifyRequest } from 'fastify';

/** For routes whose body is all optional: no body is an empty one. */
export async function readNoBodyAsEmpty(request: FastifyRequest): Promise<void> {
  if (request.body === undefined) request.body = {};
}
