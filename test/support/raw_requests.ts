/** Requests, byte for byte, and the servers that get them. */
import assert from 'node:assert/strict';
import type { AddressInfo } from 'node:net';
import { after, before } from 'node:test';
import Fastify from 'fastify';
import { outcomeOf } from './raw_client.ts';
import { messagesPath, type Service } from './service.ts';
import { inTime } from './wait.ts';

export const SEND = '/api/v1/meetings/m/messages/';
export const REGISTER = '/api/v1/instances/register/';
export const LIST = '/api/v1/instances/';
export const HEARTBEAT = '/api/v1/instances/i/heartbeat/';
export const HOST = 'host: 127.0.0.1\r\n';
export const JSON_TYPE = 'content-type: application/json\r\n';
export const BODY = '{"message":{}}';

export const head = (method: string, path: string, headers = ''): string =>
  `${method} ${path} HTTP/1.1\r\n${HOST}${headers}\r\n`;
export const get = (path: string, headers = ''): string => head('GET', path, headers);
export const post = (path: string, body: string, headers = JSON_TYPE): string =>
  `${head('POST', path, `${headers}content-length: ${body.length}\r\n`)}${body}`;
export const send = (body: string, headers = JSON_TYPE): string => post(SEND, body, headers);
/** Makes a send with these header lines instead of Content-Length. */
export const framed = (lines: string, body: string): string => head('POST', SEND, JSON_TYPE + lines) + body;
export const chunked = (body: string): string => framed('transfer-encoding: chunked\r\n', body);
export const utf8 = (text: string): string => Buffer.from(text).toString('latin1');

/** The control: the same routes without Convoke's checks, so Fastify alone with a lenient parser. */
export function useControl(): { url: string } {
  const control = { url: '' };
  const app = Fastify({
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 10_000 },
    bodyLimit: 1 << 30,
    onProtoPoisoning: 'ignore',
    onConstructorPoisoning: 'ignore',
    http: { insecureHTTPParser: true, requireHostHeader: false },
    forceCloseConnections: true,
    // Closes the connection without a response, so that every response is one of the routes.
    clientErrorHandler: (error, socket) =>
      (error as { code?: string }).code === 'HPE_HEADER_OVERFLOW'
        ? socket.end('HTTP/1.1 431 x\r\n\r\n')
        : socket.destroy(),
  });
  app.addContentTypeParser('*', { parseAs: 'string' }, (_, body, done) => done(null, body));
  app.get(LIST, async () => ({}));
  app.get('/healthz', async () => ({}));
  for (const path of [
    REGISTER,
    '/api/v1/meetings/:meeting_id/messages/',
    HEARTBEAT,
    '/api/v1/instances/leave-meeting/',
  ]) {
    app.post(path, async (_, reply) => reply.code(201).send({}));
  }
  app.delete('/api/v1/instances/i/', async () => ({}));
  before(async () => {
    await app.listen({ port: 0, host: '127.0.0.1' });
    control.url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
  });
  after(() => app.close());
  return control;
}

/** The most processor time of this process until the response. A machine that is busy with something else needs no more. */
const WORK_MS_MAX = 1_000;

/** Makes a request on a new connection, which must succeed. */
export async function assertAnswersAsBefore(service: Service): Promise<void> {
  const bytes = post(messagesPath('next'), BODY);
  const before = process.cpuUsage();
  assert.equal(await inTime('the response', outcomeOf(service.url, bytes)), '201');
  const { user, system } = process.cpuUsage(before);
  assert.ok(user + system < WORK_MS_MAX * 1_000, `it took ${(user + system) / 1_000} ms of processor time`);
}
