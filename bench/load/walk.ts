/**
 * Requests every list with every filter that the OpenAPI document of a service has. It makes each GET without
 * parameters, with each value of each parameter, and with each pair of parameters. From lists it also reads the next
 * page.
 */
interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  schema: { $ref?: string; enum?: string[]; type?: string };
}

interface OpenApi {
  paths: Record<string, { get?: { parameters?: Parameter[] } }>;
  components: { schemas: Record<string, { enum?: string[] }> };
}

/** The values to try, by the name of the parameter. Parameters with an `enum` in the document need none here. */
export type Values = Record<string, string[]>;

export interface Asked {
  /** The path and the query. */
  what: string;
  status: number;
  /** The time of the fastest of several equal requests. */
  ms: number;
  bytes: number;
  /** Whether the service reads rows one after the other, for at most 400 ms, because no index fits the filter. */
  is_search: boolean;
}

/** Paths that stay open, or that read nothing from the store. */
const LEFT_OUT = new Set(['/api/v1/events/', '/api/v1/backups/{backup_id}/']);
const IS_SEARCH = /^.api.v1.(deliveries|messages).\?(.*&)?(state|since|until|status_code|outcome|agent_id|text|seq)=/;
const TIMES = 3;
/** A request that takes longer is not repeated. */
const SLOW_MS = 2_000;
/** How many further pages of each list are requested. */
const PAGES = 1;

/** @param headers the headers of each request, for example a key */
export async function walk(url: string, values: Values, headers: Record<string, string> = {}): Promise<Asked[]> {
  const document = (await (await fetch(`${url}/openapi.json`)).json()) as OpenApi;
  const asked: Asked[] = [];
  const ask = async (what: string): Promise<string | null> => {
    let ms = Infinity;
    let [status, text] = [0, ''];
    for (let time = 0; time < TIMES; time++) {
      const from = performance.now();
      const response = await fetch(`${url}${what}`, { headers });
      text = await response.text();
      status = response.status;
      ms = Math.min(ms, performance.now() - from);
      if (ms > SLOW_MS) break;
    }
    const body = (text.startsWith('{') ? JSON.parse(text) : {}) as {
      next_cursor?: string | null;
      searched_to?: string;
    };
    asked.push({ what, status, ms, bytes: text.length, is_search: IS_SEARCH.test(what) });
    return status === 200 ? (body.next_cursor ?? null) : null;
  };
  const valuesOf = ({ name, schema }: Parameter): string[] => {
    if (values[name] !== undefined) return values[name];
    if (schema.type === 'boolean') return ['true', 'false'];
    return schema.enum ?? document.components.schemas[schema.$ref?.split('/').at(-1) ?? '']?.enum ?? [];
  };

  for (const [path, { get }] of Object.entries(document.paths)) {
    if (get === undefined || LEFT_OUT.has(path)) continue;
    const parameters = get.parameters ?? [];
    const in_path = parameters.filter((parameter) => parameter.in === 'path');
    let places = [path];
    for (const parameter of in_path)
      places = places.flatMap((place) =>
        valuesOf(parameter).map((value) => place.replace(`{${parameter.name}}`, encodeURIComponent(value))),
      );
    const filters = parameters.filter((parameter) => parameter.in === 'query' && parameter.name !== 'cursor');
    const pages = parameters.some(({ name }) => name === 'cursor') ? PAGES : 0;
    for (const place of places) {
      const queries = [''];
      for (const [i, filter] of filters.entries()) {
        for (const value of valuesOf(filter)) {
          const query = `${filter.name}=${encodeURIComponent(value)}`;
          queries.push(query);
          for (const other of filters.slice(i + 1))
            for (const another of valuesOf(other).slice(0, 1))
              if (value === valuesOf(filter)[0]) queries.push(`${query}&${other.name}=${encodeURIComponent(another)}`);
        }
      }
      for (const query of queries) {
        let cursor = await ask(query === '' ? place : `${place}?${query}`);
        for (let page = 0; page < pages && cursor !== null; page++)
          cursor = await ask(`${place}?${query}${query === '' ? '' : '&'}cursor=${cursor}`);
      }
    }
  }
  return asked;
}
