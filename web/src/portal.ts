/**
 * The portal: this page at a path of its own, which other products may frame, for the holder of a link. It uses neither
 * a cookie nor anything else that this browser keeps of a session. It offers only what a link may do:
 * src/domain/portal_rights.ts.
 */

/** The prefix of the path of every view. */
export const BASE = /^\/portal(?:\/|$)/.test(location.pathname) ? '/portal' : '';
export const is_portal = BASE !== '';

/** The browser keeps the token until the frame is closed, so that the frame can be loaded again. */
const LINK = 'convoke.portal_link';
/** Used in browsers that store nothing for a frame. */
let link: string | null = null;

/** The token of the link; null when there is none. */
export function portalToken(): string | null {
  try {
    return sessionStorage.getItem(LINK) ?? link;
  } catch {
    return link;
  }
}

/** Removes the token from the address, because others could see it there. */
export function takeLink(): void {
  const [, token] = /^#link=(.+)$/.exec(location.hash) ?? [];
  if (token === undefined) return;
  history.replaceState(null, '', location.pathname + location.search);
  link = token;
  try {
    sessionStorage.setItem(LINK, token);
  } catch {
    // The token stays in this page.
  }
}
