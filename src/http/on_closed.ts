import type { ServerResponse } from 'node:http';

/**
 * Calls back once, when a response is written or its connection is gone. When that has happened already, it calls back
 * at once: the client may have left while the handler waited for something.
 */
export function onClosed(response: ServerResponse, callback: () => void): void {
  if (response.closed || response.destroyed) callback();
  else response.once('close', callback);
}

/**
 * Whether a client still waits for the beginning of a response. False when the client has left, or when it got a
 * response because the storage stalled.
 */
export function isAwaited({ closed, destroyed, headersSent }: ServerResponse): boolean {
  return !closed && !destroyed && !headersSent;
}

/**
 * Whether all of a response left this process. When a connection breaks while Node 22 writes a response, Node 22 still
 * calls the response finished.
 */
export function isWritten({ writableFinished, req }: ServerResponse): boolean {
  return writableFinished && !req.socket.destroyed;
}
