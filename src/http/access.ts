import type { FastifyRequest, onRequestHookHandler, RouteOptions } from 'fastify';
import { assertScope, type Principal } from '../domain/access.ts';
import type { Scope } from '../domain/api_key.ts';
import type { Keyring } from './keyring.ts';

/** Who may call a route: everybody, or keys with one of the scopes. Admins may call every route. */
export type Access = 'public' | readonly Scope[];

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: Access;
  }
  interface FastifyRequest {
    /** Whoever makes the request. On public routes nobody asks. */
    principal: Principal;
  }
}

/** What OpenAPI calls the way in which keys are given. */
export const SECURITY_SCHEME = 'api_key';

/**
 * Puts a guard before a route, which finds out who makes the request before its body is read, and says in the OpenAPI
 * document what it wants. Called for every route as it is made.
 *
 * @throws Error when the route does not say in its `config.access` who may call it: the service does not start then
 */
export function guard(route: RouteOptions, keyring: () => Keyring): void {
  const access = accessOf(route);
  if (route.schema !== undefined) route.schema = { ...route.schema, security: securityOf(access) };
  if (access === 'public') return;
  const identify: onRequestHookHandler = (request: FastifyRequest, _reply, done) => {
    try {
      request.principal = keyring().principalOf(request.headers.authorization);
      assertScope(request.principal, access);
      done();
    } catch (error) {
      done(error as Error);
    }
  };
  route.onRequest = [identify, ...[route.onRequest ?? []].flat()];
}

function accessOf({ config, method, url }: RouteOptions): Access {
  // The page of the documents and its files come from a package, and hold nothing but what is in the repository.
  if (/^\/docs(\/|$)/.test(url)) return 'public';
  if (config?.access !== undefined) return config.access;
  throw new Error(`${String(method)} ${url} does not say who may call it: give it config.access`);
}

/** One way in for each scope that is enough: OpenAPI lets any of them do. */
function securityOf(access: Access) {
  if (access === 'public') return [];
  return [...new Set<Scope>([...access, 'admin'])].map((scope) => ({ [SECURITY_SCHEME]: [scope] }));
}
