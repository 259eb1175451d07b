import type { FastifyRequest } from 'fastify';

/** For routes whose fields are all optional: a request without a body counts as one with `{}`. */
export async function readNoBodyAsEmpty(request: FastifyRequest): Promise<void> {
  if (request.body === undefined) request.body = {};
}
