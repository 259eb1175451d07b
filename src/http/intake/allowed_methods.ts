import type { App } from '../context.ts';

interface Route {
  /** Matches the path as it was sent, with its percent-encoding. */
  path: RegExp;
  methods: string[];
}

/**
 * Finds the methods of a path, for the Allow header of a 405 (RFC 9110, section 15.5.6).
 *
 * @returns a function that takes a path without its query, and returns an empty list when no route has this path
 */
export function collectMethods(app: App): (path: string) => string[] {
  const routes: Route[] = [];
  app.addHook('onRoute', ({ url, method }) => {
    routes.push({ path: pathOf(url), methods: [method].flat() });
  });
  return (path) => {
    const methods = routes.filter((route) => route.path.test(path)).flatMap((route) => route.methods);
    return [...new Set(methods)].toSorted();
  };
}

/** `:name` is one segment, `*` is everything that follows; the slash at the end is optional. */
function pathOf(url: string): RegExp {
  const segments = url.replace(/\/$/, '').split('/');
  const pattern = segments.map((segment) => (segment.startsWith(':') ? '[^/]+' : escapeSegment(segment))).join('/');
  return new RegExp(`^${pattern}/?$`);
}

function escapeSegment(segment: string): string {
  return segment === '*' ? '.*' : segment.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
}
