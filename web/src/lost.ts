import { feed } from './feed.ts';
import { Observable } from './observable.ts';

/** The page does not mention a shorter break: a service that restarts, a connection that moves to another tab. */
const BREAK_MS_MAX = 1500;

/**
 * Since when the page has not been live, so that it may show stale data; null while it is live, and in a short break.
 */
export const lost_since = new Observable<number | null>(null);

let since: number | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;

/** A hidden page may have no connection. Its break counts only from the moment when somebody looks at the page. */
function look(): void {
  const { value: state } = feed.state;
  if (state === 'live' || state === 'off') lost_since.value = since = null;
  else since ??= Date.now();
  if (since === null || document.hidden) {
    clearTimeout(timer);
    timer = undefined;
  } else timer ??= setTimeout(() => (lost_since.value = since), BREAK_MS_MAX);
}

feed.state.subscribe(look);
document.addEventListener('visibilitychange', look);
