/** The request of a delivery: its message, its headers without the secrets, and the same request as a curl command. */
import type { JSX } from 'preact';
import { type Attempt, curlOf, type Delivery, type DeliveryPush } from '@convoke/sdk';
import { Copy } from '../parts/copy.tsx';
import { Foreign } from '../parts/foreign.tsx';
import { Failure, Skeleton } from '../parts/states.tsx';
import { type Query, useQuery } from '../queries.ts';
import { client } from '../service.ts';

/** The request of a delivery changes only with a new attempt. */
export function useDeliveryPush({ delivery_id, attempt_count }: Delivery): Query<DeliveryPush> {
  return useQuery(`push ${delivery_id} ${attempt_count}`, () => client.getDeliveryPush(delivery_id));
}

export function DeliveryRequest({ query: { value, problem, again } }: { query: Query<DeliveryPush> }): JSX.Element {
  if (value === null) return problem === null ? <Skeleton lines={3} /> : <Failure problem={problem} again={again} />;
  const command = curlOf(value);
  return (
    <>
      {value.url !== null && (
        <p class="request-line">
          <code>POST</code> <Foreign class="id-text">{value.url}</Foreign>
        </p>
      )}
      <pre class="excerpt" tabIndex={0} aria-label="The body of the request, with the message">
        {value.body}
      </pre>
      <details class="request-headers">
        <summary>Headers</summary>
        <Headers headers={value.headers} />
      </details>
      {value.runtime !== null && <p class="hint">{`Its runtime ${value.runtime} gets this in a shape of its own.`}</p>}
      {command !== null && (
        <div class="button-row">
          <Copy text={command} what="the curl command">
            Copy as curl
          </Copy>
          <span class="hint">Without the secrets: put the signature and the hidden headers in yourself.</span>
        </div>
      )}
    </>
  );
}

/** The headers of one attempt, beside its response. */
export function AttemptRequest({ push, attempt }: { push: DeliveryPush; attempt: Attempt }): JSX.Element {
  const at_s = Math.floor(Date.parse(attempt.started_at) / 1000);
  const headers = {
    ...push.headers,
    'webhook-timestamp': String(at_s),
    'convoke-attempt': String(attempt.attempt),
  };
  return (
    <details class="request-headers">
      <summary>
        Request<span class="unseen"> of attempt {attempt.attempt}</span>
      </summary>
      <Headers headers={headers} />
    </details>
  );
}

function Headers({ headers }: { headers: Record<string, string> }): JSX.Element {
  return (
    <dl class="headers">
      {Object.entries(headers).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            <Foreign>{value}</Foreign>
          </dd>
        </div>
      ))}
    </dl>
  );
}
