import type { App, HttpContext } from '../../src/http/context.ts';
import { allRoutes, type RoutesContext } from '../../src/http/routes/routes.ts';
import { createServer } from '../../src/http/server.ts';

/** The server with every route and nothing behind them. Use it to inspect routes; their handlers cannot be called. */
export function routesOnly(max_message_bytes = 0): Promise<App> {
  return createServer({} as HttpContext, allRoutes({ max_message_bytes } as RoutesContext));
}
