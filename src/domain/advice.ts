import type { LastFailure } from './instance.ts';
import type { Outcome } from './outcome.ts';

/** A failure with advice for it. The service computes the advice for each response of the API and does not store it. */
export interface AdvisedFailure extends LastFailure {
  advice: string;
}

/** The failure without the receiver's response, for callers who may not see its deliveries. */
export function withoutResponse(failure: LastFailure | null): LastFailure | null {
  if (failure === null) return null;
  const { response_excerpt: _, ...shown } = failure;
  return shown;
}

/** Adds the advice to a failure; null stays null. */
export function advised(failure: LastFailure | null): AdvisedFailure | null {
  return failure && { ...failure, advice: adviceFor(failure) };
}

/**
 * Advice on the result of an attempt, in one sentence for the person who runs the receiver. People see the sentence
 * beside the detail of the attempt.
 */
export function adviceFor({ outcome, status_code }: { outcome: Outcome; status_code: number | null }): string {
  switch (outcome) {
    case 'ok':
      return `${status_code}: the receiver accepts pushes; nothing to do.`;
    case 'not_200':
      if (status_code === 410 || status_code === 413)
        return `${status_code}: the subscriber does not take this event; it is not sent again, and the next ones are.`;
      return `${status_code}: only 200 counts as delivered; respond 200, or set success_statuses to "2xx" for this instance.`;
    case 'gone':
      return '410: the receiver wants no more pushes; register the instance again when it should get them again.';
    case 'bad_status':
      if (status_code === null)
        return 'Convoke made no request for this message: shorten the value, or change runtime_options.';
      return adviceForStatus(status_code);
    case 'timeout':
      return 'The receiver took the request and did not respond in time: respond first and let the agents work afterwards, or raise timeout_s (ack_timeout_s for a machine that pulls).';
    case 'broken_response':
      return 'The response was not complete HTTP: check that webhook_url names an HTTP server and not some other service.';
    case 'connect_refused':
      return 'Nothing listens at that address and port: start the runtime, and check the port in webhook_url.';
    case 'connect_timeout':
      return 'Check the address in webhook_url, and any firewall between here and there.';
    case 'unreachable':
      return 'Check the network of the receiver, and the address in webhook_url, or in --to of its convoke connect.';
    case 'dns_failed':
      return 'Check the spelling of the host name in webhook_url, and the name server.';
    case 'tls_failed':
      return 'Check the certificate, its host name and its dates.';
    case 'blocked':
      return 'The egress policy forbids this address: register an address that it allows, or allow this one with the setting egress or egress_allow.';
  }
}

function adviceForStatus(status: number): string {
  if (status === 401)
    return '401: the runtime wants a credential: set webhook_headers.authorization. Or it verifies with another webhook secret: a rotation of the secret makes a new one.';
  if (status === 403)
    return '403: the runtime refuses this credential or this sender; check webhook_headers.authorization.';
  if (status === 404) return '404: nothing responds at this path; check the path in webhook_url.';
  if (status === 405) return '405: this path takes no POST; check the path in webhook_url.';
  if (status === 413) return '413: the push is too large for the runtime; raise its limit for request bodies.';
  if (status === 415)
    return '415: the runtime does not take application/json at this path; check the path in webhook_url.';
  if (status === 429)
    return '429: the runtime asks for fewer requests; pushes continue after the time in its Retry-After.';
  if (status >= 300 && status < 400) {
    return `${status}: redirects are never followed; put the address that it points to into webhook_url.`;
  }
  if (status >= 500) return `${status}: the runtime failed on the push; its own log says why.`;
  return `${status}: the runtime refused the push; the response_excerpt of the attempt may say why.`;
}
