import type { FastifyRequest, onRequestHookHandler, preValidationHookHandler, RouteOptions } from 'fastify';
import { assertScope, isAdmin, type Principal } from '../../domain/access.ts';
import type { Scope } from '../../domain/api_key.ts';
import { assertOpenToLinks, type PortalRight } from '../../domain/portal_rights.ts';
import type { Keyring } from './keyring.ts';
import type { Limited, Limits } from './limits.ts';
import { Problem, type ProblemCode } from '../../domain/problem.ts';
import type { Sessions } from './sessions.ts';
import type { Standing } from './standing.ts';

/** The callers that a route permits: everybody, or keys with one of the scopes. Admins may call every route. */
export type Access = 'public' | readonly Scope[];

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: Access;
    /**
     * Whether a portal link may call the route, or why not. Without this property, no portal link may call the route.
     */
    portal_link?: PortalRight;
    /** Limits how often a key and an address may call the route. */
    limited?: Limited;
  }
  interface FastifyRequest {
    /** The caller; null on public routes. */
    principal: Principal;
    /** The key or session behind the request; null on public routes. */
    standing: Standing | null;
  }
}

/** The name of the security scheme in the OpenAPI document. */
export const SECURITY_SCHEME = 'api_key';

/**
 * Puts a guard before a route. The server calls this for every route. The guard identifies the caller and checks the
 * rate before the body is read. When the body is there, it checks the key again. This function also adds the security
 * of the route to the OpenAPI document.
 *
 * @throws Error when the route does not say in its `config.access` who may call it: the service does not start then
 */
export function guard(
  route: RouteOptions,
  parts: () => { keyring: Keyring; limits: Limits; sessions: Sessions },
): void {
  const access = accessOf(route);
  if (route.schema !== undefined) route.schema = { ...route.schema, security: securityOf(access) };
  if (access === 'public') return;
  const { limited, audit, portal_link } = route.config ?? {};
  const is_audited = audit !== undefined && audit !== 'none';
  const identify: onRequestHookHandler = (request: FastifyRequest, reply, done) => {
    const { keyring, limits, sessions } = parts();
    const admit = (by_session: Standing | null): void => {
      try {
        const standing = by_session ?? limits.identify(keyring, request);
        if (standing instanceof Promise) return void standing.then(admit, done);
        request.standing = standing;
        request.principal = standing.principal;
        assertOpenToLinks(request.principal, portal_link);
        assertScope(request.principal, access);
        // The limit of changes is against floods of the audit log. It does not hold for admins, because the log names
        // the admin who floods it.
        const is_change = is_audited && !isAdmin(request.principal);
        limits.assertWithinRate([limited, is_change ? 'change' : undefined], request.principal, request);
        done();
      } catch (error) {
        done(error as Error);
      }
    };
    // A session is read from the store, and a key is in memory. So only a session and an unknown token wait.
    if (sessions.isUsedBy(request)) sessions.identify(request, reply).then(admit, done);
    else admit(null);
  };
  /**
   * Checks the key again when the body is there. A client can hold its body back for half a minute. In that time an
   * admin may revoke the key, or make the first key.
   */
  const identifyAgain: preValidationHookHandler = (request: FastifyRequest, _reply, done) => {
    const { standing, signed_in } = request;
    const code = standing?.revocationReason() ?? null;
    if (code !== null) return done(new Problem(code));
    if (signed_in === null || READING.has(request.method)) return done();
    const { sessions } = parts();
    const judge = (ended: ProblemCode | null): void => done(ended === null ? undefined : new Problem(ended));
    sessions.storedRevocationReason(signed_in.session).then(judge, done);
  };
  route.onRequest = [identify, ...[route.onRequest ?? []].flat()];
  route.preValidation = [identifyAgain, ...[route.preValidation ?? []].flat()];
}

/** Methods whose requests have no body, so that no time passes between `onRequest` and `preValidation`. */
const READING = new Set(['GET', 'HEAD']);

export function accessOf({ config, method, url }: RouteOptions): Access {
  // The page that documents the API needs no key: it contains only files of the repository.
  if (/^\/docs(\/|$)/.test(url)) return 'public';
  if (config?.access !== undefined) return config.access;
  throw new Error(`${String(method)} ${url} does not say who may call it: give it config.access`);
}

/** A route that changes something must say which entry it writes into the audit log. */
export function assertAudited({ config, method, url }: RouteOptions): void {
  const is_reading = [method].flat().every((each) => each === 'GET' || each === 'HEAD' || each === 'OPTIONS');
  if (is_reading || config?.audit !== undefined || !url.startsWith('/api/')) return;
  throw new Error(`${String(method)} ${url} does not say what it writes to the audit log: give it config.audit`);
}

/** The security of a route in the OpenAPI document: one alternative for each scope that permits the call. */
function securityOf(access: Access) {
  if (access === 'public') return [];
  return [...new Set<Scope>([...access, 'admin'])].map((scope) => ({ [SECURITY_SCHEME]: [scope] }));
}
