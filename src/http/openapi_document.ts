import { ProblemSchema } from './schemas.ts';

/**
 * Text in UTF-8 has no lone surrogates; they come as escapes in JSON, and validation refuses them. Regular expressions
 * of other languages cannot even name them.
 */
const SURROGATES = String.raw`\\ud800-\\udfff`;

interface Content {
  schema?: { required?: string[]; minProperties?: number; $ref?: string };
}

interface Operation {
  requestBody?: { required?: boolean; content: Record<string, Content> };
  responses?: Record<string, { content?: Record<string, Content> }>;
}

/** The document as @fastify/swagger collects it, with what it cannot know. */
export function finished<Document extends { paths?: object | undefined; components?: object | undefined }>(
  document: Document,
): Document {
  const operations: Operation[] = Object.values(document.paths ?? {}).flatMap((path) => Object.values(path as object));
  for (const { requestBody, responses = {} } of operations) {
    const body = requestBody?.content['application/json']?.schema;
    // It says of every body that it is required.
    if (requestBody !== undefined && body?.required === undefined && body?.minProperties === undefined)
      requestBody.required = false;
    for (const { content } of Object.values(responses)) {
      const problem = content?.['application/problem+json'];
      if (problem !== undefined) problem.schema = { $ref: '#/components/schemas/Problem' };
    }
  }
  const { schemas } = (document.components ?? {}) as { schemas?: object };
  const complete = {
    ...document,
    components: { ...document.components, schemas: { ...schemas, Problem: ProblemSchema } },
  };
  return JSON.parse(JSON.stringify(complete).replaceAll(SURROGATES, '')) as Document;
}
