/**
 * The texts for the detail of a failed attempt. Tables show these texts, so each text is short. The advice for the
 * outcome (domain/advice.ts) says what to do.
 */
import errors from 'undici/lib/core/errors.js';
import type { Outcome } from '../../domain/outcome.ts';
import type { Stage } from './transport.ts';

export const RESPONSE_HEADER_BYTES_MAX = 16 * 1024;

export interface FailedConnection {
  outcome: Outcome;
  detail: string;
}

/** @param code the code of the socket's error; undefined when there was no address left to try */
export function describeConnectError(code: string | undefined, port: number): FailedConnection {
  if (code === 'ECONNREFUSED') return { outcome: 'connect_refused', detail: `connection refused: port ${port}` };
  if (code === 'ETIMEDOUT') return { outcome: 'connect_timeout', detail: 'no connection: timed out' };
  // A receiver that refuses a connection causes ECONNREFUSED. ECONNRESET means that the receiver accepted the
  // connection first.
  if (code === 'ECONNRESET') return { outcome: 'broken_response', detail: 'connection reset as soon as it was made' };
  return { outcome: 'unreachable', detail: CONNECT_ERRORS[code ?? ''] ?? `connection failed (${code ?? 'EUNKNOWN'})` };
}

const CONNECT_ERRORS: Record<string, string> = {
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to its network',
  EMFILE: 'this service has no file descriptors left',
  ENFILE: 'the host of this service has no file descriptors left',
  EADDRNOTAVAIL: 'the host of this service has no port left to connect from',
};

export function describeTlsError({ code = 'EUNKNOWN' }: NodeJS.ErrnoException, hostname: string): string {
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') return `TLS failed: certificate is not for ${hostname}`;
  return `TLS failed: ${TLS_ERRORS[code] ?? code}`;
}

const TLS_ERRORS: Record<string, string> = {
  CERT_HAS_EXPIRED: 'certificate expired',
  CERT_NOT_YET_VALID: 'certificate not valid yet',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'certificate is self-signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'certificate from an authority that this service does not trust',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'certificate from an authority that this service does not trust',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'certificate chain is incomplete',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS; should the URL start with http://?',
  ERR_SSL_PACKET_LENGTH_TOO_LONG: 'it does not speak TLS; should the URL start with http://?',
  ECONNRESET: 'closed during the handshake',
};

/** @param code the code of the lookup; ENOTFOUND (the name does not exist) needs no explanation */
export function describeLookup(code: string, hostname: string): string {
  if (code === 'ENOTFOUND') return `host not found: ${hostname}`;
  return `host not found: ${hostname} (${LOOKUP_ERRORS[code] ?? `name server answered ${code}`})`;
}

const LOOKUP_ERRORS: Record<string, string> = {
  ENODATA: 'it has no address',
  ETIMEOUT: 'no name server answered in time',
  ECONNREFUSED: 'no name server could be reached',
  ESERVFAIL: 'name server failed',
  EREFUSED: 'name server refused',
  EBADNAME: 'malformed name',
};

/**
 * @param stage the stage that had begun and not ended; null: no stage had begun
 * @param when the deadline in words, such as `within 5 s`
 * @param is_unread whether the receiver left a part of the request unread
 */
export function describeTimeout(stage: Stage | null, when: string, is_unread: boolean): FailedConnection {
  switch (stage) {
    case 'dns':
      return { outcome: 'dns_failed', detail: `no name server answered ${when}` };
    case 'connect':
      return { outcome: 'connect_timeout', detail: `no connection ${when}` };
    case 'tls':
      return { outcome: 'tls_failed', detail: `TLS failed: no handshake ${when}` };
    default:
      return { outcome: 'timeout', detail: `${is_unread ? 'request not read' : 'no answer'} ${when}` };
  }
}

/** @param has_responded whether any byte of a response arrived */
export function describeBroken(error: NodeJS.ErrnoException, has_responded: boolean): string {
  // undici 8.12 leaves the code of a parser error undefined.
  if (error instanceof errors.HTTPParserError) return 'response was not HTTP/1.1';
  const { code } = error;
  if (code === 'UND_ERR_HEADERS_OVERFLOW') {
    return `headers of the response were over ${RESPONSE_HEADER_BYTES_MAX / 1024} KiB`;
  }
  const how = code === 'ECONNRESET' || code === 'EPIPE' ? 'reset' : 'closed';
  return `connection ${how} ${has_responded ? 'in the middle of the response' : 'without a response'}`;
}

/** Empty after a success. */
export function describeStatus(status_code: number, outcome: Outcome): string {
  if (outcome === 'ok') return '';
  if (outcome === 'not_200') return `answered ${status_code}, not 200`;
  if (status_code >= 300 && status_code < 400) return `answered ${status_code}; redirects are not followed`;
  return `answered ${status_code}`;
}
