/** Whether the machine of an instance that pulls is connected. */
import type { JSX } from 'preact';
import type { Instance } from '@convoke/sdk';
import { Foreign } from './foreign.tsx';
import { Mark } from './mark.tsx';
import { Ago } from './time.tsx';

type Pulling = Pick<Instance, 'connected'>;

/** Whether the machine of an instance pulls; false for an instance with a webhook. */
export function doesPull({ connected }: Pulling): boolean {
  return connected !== undefined;
}

export function ConnectionState({ instance: { connected } }: { instance: Pulling }): JSX.Element | null {
  if (connected === undefined) return null;
  return connected === null ? (
    <span class="state state-waiting">
      <Mark kind="waiting" />
      waiting for connection
    </span>
  ) : (
    <span class="state state-good">
      <Mark kind="good" />
      connected
    </span>
  );
}

export function ConnectionTag({ instance: { connected } }: { instance: Pulling }): JSX.Element | null {
  if (connected === undefined) return null;
  return <span class="tag">{connected === null ? 'not connected' : 'connected'}</span>;
}

/** The facts of a connection, for the page of an instance. */
export function connectionFacts({ connected }: Pulling): (readonly [string, JSX.Element])[] {
  if (connected === undefined || connected === null) return [];
  const { since, address, client } = connected;
  return [
    ['Connected since', <Ago at={since} />],
    ['From', address === null ? <span class="faint">unknown</span> : <Foreign>{address}</Foreign>],
    ['Program', client === null ? <span class="faint">it does not say</span> : <Foreign>{client}</Foreign>],
  ];
}
