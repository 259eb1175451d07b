import type { ComponentChildren, JSX } from 'preact';
import type { Instance, Scope } from '@convoke/sdk';
import { useQuery } from '../queries.ts';
import { client, may, session } from '../service.ts';

/** Shows its children only to people who have the scope. */
export function May({ scope, children }: { scope: Scope; children: ComponentChildren }): JSX.Element | null {
  return may(scope) ? <>{children}</> : null;
}

/**
 * Whether the signed-in key may change an instance. An admin key may change all instances. Any other key may change
 * only the instances that it owns, but may see others.
 */
export function mayChange({ instance_id, owner_key_id }: Pick<Instance, 'instance_id' | 'owner_key_id'>): boolean {
  if (may('admin')) return true;
  const { key_id = null, instance_id: only = null } = session.value ?? {};
  if (!may('instance') || (only !== null && only !== instance_id)) return false;
  return !seesOthers() || owner_key_id === key_id;
}

/** Whether the user sees instances that the user is not permitted to change. */
export function seesOthers(): boolean {
  return may('read') && !may('admin');
}

/**
 * Whether the signed-in key may change an instance of which only the id is known. Null: there is no instance, so nobody
 * may change it.
 */
export function useMayChange(instance_id: string | null): boolean {
  const is_asked = instance_id !== null && may('instance') && seesOthers();
  const { value } = useQuery(is_asked ? `instance ${instance_id}` : null, () => client.getInstance(instance_id!));
  if (instance_id === null) return false;
  return is_asked ? value !== null && mayChange(value) : mayChange({ instance_id, owner_key_id: null });
}

/** Shows its children only to people who may change the instance. */
export function MayChange({ instance_id, children }: { instance_id: string; children: ComponentChildren }) {
  return useMayChange(instance_id) ? <>{children}</> : null;
}
