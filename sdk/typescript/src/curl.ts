import type { DeliveryPush } from './types.ts';

/** Linux starts no program with a longer argument. The quotes and the end take a few bytes. */
const ARGUMENT_BYTES_MAX = 128 * 1024 - 100;

/**
 * A curl command that makes the request of a delivery again, for a POSIX shell. Null when the delivery has no URL, or
 * when the runtime of its instance expects requests of another shape. The command has `[hidden]` and `[signature]`
 * instead of secrets. A receiver that checks a secret or the signature refuses the request until you put in the real
 * values. Without `--globoff`, curl would read brackets and braces in the URL as a list of URLs.
 */
export function curlOf({ url, runtime, headers, body }: DeliveryPush): string | null {
  if (url === null || runtime !== null) return null;
  const given = Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`);
  const command = (data: string) =>
    [`curl --globoff -X POST ${quoted(url)}`, ...given, `--data-binary ${data}`].join(' \\\n  ');
  const bytes = new TextEncoder().encode(body).length;
  return bytes <= ARGUMENT_BYTES_MAX ? command(quoted(body)) : `printf %s ${quoted(body)} | ${command('@-')}`;
}

/** Within single quotes a POSIX shell changes nothing; only the quote itself ends them. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
