/**
 * Responds to clients while the storage stalls. Only the client stops waiting; the handler continues. Its call of the
 * store may still succeed. Then the change reaches the engine and the live feed as always.
 */
import type { RouteHandlerMethod, RouteOptions } from 'fastify';
import { ListNode, IntrusiveList } from '../../delivery/intrusive_list.ts';
import { inDoubt, LONG_SIGN, stalled } from '../../store/thread/stall.ts';
import type { Stall } from '../../store/contract/stall.ts';
import type { App } from '../context.ts';

class Caller extends ListNode {
  readonly giveUp: () => void;
  /** How many signs of the present stall there were since the request arrived. */
  signs = 0;

  constructor(giveUp: () => void) {
    super();
    this.giveUp = giveUp;
  }
}

/** Puts the checks before every route that is added later. */
export function addStalls(app: App, stall: Stall): void {
  const callers = new IntrusiveList<Caller>();
  stall.onStall((_is_long, is_new) => {
    for (const caller of callers.toArray()) {
      if (is_new) caller.signs = 0;
      if (++caller.signs < LONG_SIGN) continue;
      callers.delete(caller);
      caller.giveUp();
    }
  });
  app.addHook('onRequest', (request, _reply, done) => {
    const { url = '' } = request.routeOptions;
    const waits = request.method === 'GET' ? stall.holds_up_reading : stall.is_stalled;
    if (waits && url.startsWith('/api/')) done(stalled());
    else done();
  });
  app.addHook('onRoute', (route: RouteOptions) => {
    // Sends are not watched, because there are too many. When the storage stalls, the engine responds to their senders.
    if (!route.url.startsWith('/api/') || route.config?.limited === 'send') return;
    const handle = route.handler;
    const handleInTime: RouteHandlerMethod = function (request, reply) {
      const { promise, resolve, reject } = Promise.withResolvers<unknown>();
      const caller = new Caller(() => {
        // A response that has begun needs no more of the storage. An error would only cut it off.
        if (!reply.raw.headersSent) reject(inDoubt());
      });
      callers.add(caller);
      const answer = (async () => handle.call(this, request, reply))();
      void answer.then(resolve, reject).finally(() => callers.delete(caller));
      return promise;
    };
    route.handler = handleInTime;
  });
}
