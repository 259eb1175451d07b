/**
 * Files that are the same for every client. The service keeps them in memory, compresses them once, and sends a file
 * only to clients that do not have it.
 */
import { hash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';

/** One representation of a file. */
export interface Variant {
  bytes: Buffer;
  etag: string;
}

export interface File {
  type: string;
  headers: Readonly<Record<string, string>>;
  cache_control: string;
  plain: Variant;
  encoded: { name: string; variant: Variant }[];
}

/** A representation with its ETag, which is a digest of the bytes. */
export function variantOf(bytes: Buffer): Variant {
  return { bytes, etag: `"${hash('sha256', bytes, 'base64url').slice(0, 22)}"` };
}

/** Sends the smallest representation that the client accepts, or 304 when the client has it already. */
export function sendFile({ headers }: FastifyRequest, reply: FastifyReply, file: File): FastifyReply {
  const encoding = file.encoded.find(({ name }) => accepts(headers['accept-encoding'] ?? '', name));
  const { bytes, etag } = encoding?.variant ?? file.plain;
  void reply.headers(file.headers).type(file.type).header('etag', etag).header('cache-control', file.cache_control);
  if (file.encoded.length > 0) void reply.header('vary', 'accept-encoding');
  if (encoding !== undefined) void reply.header('content-encoding', encoding.name);
  const is_known = headers['if-none-match']?.split(',').some((known) => isSameTag(known.trim(), etag)) === true;
  return is_known ? reply.code(304).send() : reply.send(bytes);
}

/**
 * Compares tags as RFC 9110 asks for If-None-Match (section 13.1.2): a weak tag, which begins with `W/`, is the same as
 * the strong one. A proxy that compresses a file by itself marks the tag of that file as weak.
 */
function isSameTag(known: string, etag: string): boolean {
  return known === '*' || known.replace(/^W\//, '') === etag;
}

/** Whether the header names the encoding with a weight above 0 (RFC 9110, section 12.5.3). */
function accepts(accept_encoding: string, name: string): boolean {
  return accept_encoding.split(',').some((part) => {
    const [coding = '', ...parameters] = part.split(';').map((piece) => piece.trim().toLowerCase());
    return coding === name && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter));
  });
}
