/**
 * Keywords that a schema for a model does not have. Such a keyword is only for the service's own validator, or readers
 * of schemas understand it in different ways.
 */
const LEFT_OUT = new Set(['title', 'examples', 'pattern', 'format']);

export interface PlainSchema {
  [keyword: string]: unknown;
  type: 'object';
}

/** A schema of the API as plain JSON Schema for a model: types, bounds and descriptions. */
export function plainSchema(schema: object): PlainSchema {
  return plain(JSON.parse(JSON.stringify(schema))) as PlainSchema;
}

function plain(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(plain);
  if (typeof schema !== 'object' || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema)
      .filter(([keyword]) => !LEFT_OUT.has(keyword) && !keyword.startsWith('x-'))
      .map(([keyword, value]) => [
        keyword,
        // Below `properties` are names of fields and no keywords.
        keyword === 'properties' ? mapValues(value as object) : keyword === 'enum' ? value : plain(value),
      ]),
  );
}

function mapValues(properties: object): object {
  return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, plain(schema)]));
}
