import type { JSX } from 'preact';
import { useObservable } from '../observable.ts';
import { session } from '../service.ts';
import { Foreign } from './foreign.tsx';

/** The operator's name for this environment, so that nobody mistakes production for another environment. */
export function Environment(): JSX.Element | null {
  const environment = useObservable(session)?.environment ?? null;
  return environment === null ? null : (
    <span class="tag environment" title={environment}>
      {environment}
    </span>
  );
}

/** Who is signed in, what they may do, and which version of the service this is. */
export function Who(): JSX.Element | null {
  const found = useObservable(session);
  if (found === null) return null;
  const { state, key_name, key_id, scopes, version, environment } = found;
  return (
    <p class="who">
      {state === 'open' ? (
        <span class="clip">No key is needed</span>
      ) : (
        <>
          <Foreign class="clip strong">{key_name ?? key_id ?? 'Signed in by a link'}</Foreign>
          <span class="clip">{scopes.join() === 'read' ? 'read-only' : scopes.join(', ')}</span>
        </>
      )}
      <span class="clip">Convoke {version}</span>
      {environment !== null && <span class="clip">{environment}</span>}
    </p>
  );
}
