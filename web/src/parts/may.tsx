import type { ComponentChildren, JSX } from 'preact';
import type { Scope } from '@convoke/sdk';
import { may } from '../service.ts';

/** What only somebody with a scope may do is shown to nobody else. */
export function May({ scope, children }: { scope: Scope; children: ComponentChildren }): JSX.Element | null {
  return may(scope) ? <>{children}</> : null;
}
