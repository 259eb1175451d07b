import { createServer } from './server.ts';
import type { HttpParts } from './parts.ts';

/** The OpenAPI 3.1 document, made from the schemas that validate: what /openapi.json answers and openapi.json holds. */
export async function openapiDocument(): Promise<object> {
  // Routes only take hold of their parts when they are called; none is.
  const app = await createServer({ max_message_bytes: 0 } as HttpParts);
  try {
    await app.ready();
    return app.swagger();
  } finally {
    await app.close();
  }
}
