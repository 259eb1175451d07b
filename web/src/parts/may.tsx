import type { ComponentChildren, JSX } from 'preact';
import type { Scope } from '@convoke/sdk';
import { may } from '../service.ts';

/** Shows its children only to people who have the scope. */
export function May({ scope, children }: { scope: Scope; children: ComponentChildren }): JSX.Element | null {
  return may(scope) ? <>{children}</> : null;
}
