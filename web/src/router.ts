/** Every view has a URL. The address alone decides which view is shown. */
import { options } from 'preact';
import { useEffect } from 'preact/hooks';
import { followed } from './keyboard.ts';
import { Observable, useObservable } from './observable.ts';
import { BASE } from './portal.ts';

export interface Place {
  path: string;
  query: URLSearchParams;
  /** With its `#`; empty when there is none. */
  hash: string;
}

const place = new Observable<Place>(read());

function read(): Place {
  return {
    // A path with two slashes would be the address of another host in a link.
    path: location.pathname.slice(BASE.length).replace(/^\/*/, '/'),
    query: new URLSearchParams(location.search),
    hash: location.hash,
  };
}

/**
 * Goes to the view at the path `to`. The path has no prefix: in the portal, this function adds it. With `replace`, the
 * back button does not return to the current view.
 */
export function go(to: string, { replace = false } = {}): void {
  const address = BASE + to;
  if (address === location.pathname + location.search + location.hash) return;
  // In the portal, `history.state` holds the portal link.
  if (replace) history.replaceState(history.state, '', address);
  else history.pushState(history.state, '', address);
  place.value = read();
}

/** The address of the view that stays open when the user goes back or forward; null while no view has to stay. */
let kept: string | null = null;

/** Keeps the view when the user goes back or forward, until the returned function is called. */
export function keepPlace(): () => void {
  kept = location.href;
  return () => (kept = null);
}

export function usePlace(): Place {
  return useObservable(place);
}

/** Changes filters of the view that is shown. Empty filters are left out of the address. */
export function filterBy(changes: Record<string, string | null>): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === '') query.delete(name);
    else query.set(name, value);
  }
  // The part after the # names the message that somebody reads beside the list.
  go(addressOf([place.value.path], query, { as_is: true }) + location.hash, { replace: true });
}

/** Does an action that the address asks for, once. A reload does not repeat it. */
export function useAsked(name: string, answer: () => void): void {
  const is_asked = usePlace().query.has(name);
  useEffect(() => {
    if (!is_asked) return;
    filterBy({ [name]: null });
    answer();
  }, [is_asked]);
}

/** The address of a view, or of an object below a view, such as `/instances/a%2Fb`. */
export function addressOf(
  parts: readonly string[],
  query?: URLSearchParams | Record<string, string>,
  { as_is = false } = {},
): string {
  const path = as_is ? parts.join('') : `/${parts.map(encodeURIComponent).join('/')}`;
  const search = new URLSearchParams(query).toString();
  return search === '' ? path : `${path}?${search}`;
}

/** `['instances', 'a/b']` for `/instances/a%2Fb`; null for a path that cannot be decoded. */
export function partsOf(path: string): string[] | null {
  try {
    return path
      .split('/')
      .filter((part) => part !== '')
      .map(decodeURIComponent);
  } catch {
    return null;
  }
}

/** The service itself serves these paths, so they are no views. */
const NO_VIEW = /^\/(docs|api|metrics|openapi\.json)(\/|$)/;

/** Gives every link to a view the prefix, because a browser may open a link in a new tab. */
function prefixLinks(): void {
  options.vnode = (made) => {
    const props = made.props as { href?: unknown };
    const { href } = props;
    if (made.type === 'a' && typeof href === 'string' && /^\/(?!\/)/.test(href) && !NO_VIEW.test(href))
      props.href = BASE + href;
  };
}

/** Lets plain links work without loading the page again. */
export function followLinks(): void {
  if (BASE !== '') prefixLinks();
  addEventListener('popstate', () => {
    if (kept === null) place.value = read();
    else history.pushState(history.state, '', kept);
  });
  document.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (link === null || link.origin !== location.origin || link.target !== '' || link.hasAttribute('download')) return;
    if (NO_VIEW.test(link.pathname)) return;
    event.preventDefault();
    followed.by_keyboard = event.detail === 0;
    const path = link.pathname.startsWith(`${BASE}/`) ? link.pathname.slice(BASE.length) : link.pathname;
    go(path + link.search + link.hash);
  });
}
