/**
 * The portal is this page at a path of its own, for the holder of a portal link. Pages of other products may show the
 * portal in a frame. It uses neither a cookie nor anything else that this browser keeps of a session. It offers only
 * what a link may do: src/domain/portal_rights.ts.
 */

/** The prefix of the path of every view. */
export const BASE = /^\/portal(?:\/|$)/.test(location.pathname) ? '/portal' : '';
export const is_portal = BASE !== '';

/**
 * The state of each entry of the history. It keeps the token, so that the frame can be loaded again. No store of the
 * browser could keep the token: all frames of a page share a store, and each frame may have another link.
 */
interface State {
  link: string;
}

let link: string | null = is_portal ? ((history.state as State | null)?.link ?? null) : null;

/** The token of the link; null when there is none. */
export function portalToken(): string | null {
  return link;
}

/** Takes the token out of the address, because others could see it there. Returns whether there was a token. */
export function takeLink(): boolean {
  const [, token] = /^#link=(.+)$/.exec(location.hash) ?? [];
  if (token === undefined) return false;
  link = token;
  history.replaceState({ link } satisfies State, '', location.pathname + location.search);
  return true;
}
