import { type Instance, isSwitchedOn } from '../../domain/instance.ts';
import { type SigningKey, signingKey } from '../../domain/signature.ts';

/** What an instance needs to be pushed to, decoded once per registration. */
export interface Target {
  url: string;
  headers: Record<string, string>;
  success_statuses: Instance['success_statuses'];
  key: SigningKey;
  previous_key: SigningKey | null;
  previous_key_until: number;
  switched_on: boolean;
  /** Tells one version of the registration from the next. */
  updated_at: number;
}

export function targetOf(instance: Instance): Target {
  return {
    url: instance.webhook_url,
    headers: instance.webhook_headers,
    success_statuses: instance.success_statuses,
    key: signingKey(instance.webhook_secret),
    previous_key: instance.previous_secret === null ? null : signingKey(instance.previous_secret),
    previous_key_until: instance.previous_secret_until ?? 0,
    switched_on: isSwitchedOn(instance),
    updated_at: instance.updated_at,
  };
}
