import type { DeliveryPush } from './types.ts';

/**
 * A curl command that makes the request of a delivery again, for a POSIX shell. Null when the delivery has no URL, or
 * when the runtime of its instance expects requests of another shape. The command has `[hidden]` and `[signature]`
 * instead of secrets. A receiver that checks a secret or the signature refuses the request until you put in the real
 * values.
 */
export function curlOf({ url, runtime, headers, body }: DeliveryPush): string | null {
  if (url === null || runtime !== null) return null;
  const given = Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`);
  return [`curl -X POST ${quoted(url)}`, ...given, `--data-binary ${quoted(body)}`].join(' \\\n  ');
}

/** Within single quotes a POSIX shell changes nothing; only the quote itself ends them. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
