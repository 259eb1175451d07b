/**
 * Outpost, https://github.com/hookdeck/outpost, with RabbitMQ, its log in PostgreSQL, and 100 deliveries at a time
 * instead of its default, 1. Its telemetry is off. Its settings and requests are as
 * docs/content/self-hosting/configuration.mdoc and docs/apis/openapi.yaml of that repository describe them.
 */
import { dirname, join } from 'node:path';
import { freePort } from '../../test/support/free_port.ts';
import { meetingsOf, membersOf } from '../load/fleet.ts';
import { MEETING, MESSAGE } from '../load/request.ts';
import { callJson, missingOf, outputOf, pathOf, Processes, responds } from './programs.ts';
import type { WebhookServer } from './server.ts';

const KEY = 'bench';
const TOPIC = 'message.created';
const AT_A_TIME = '100';

export const outpost: WebhookServer = {
  name: 'Outpost',
  missing: () => missingOf('BENCH_OUTPOST', 'BENCH_REDIS', 'BENCH_RABBITMQ'),
  start: (fleet) =>
    Processes.run(async (processes) => {
      const [postgres, redis] = [await processes.postgres(), await processes.redis()];
      const [rabbitmq, port] = [await processes.rabbitmq(), await freePort()];
      const env = {
        API_PORT: String(port),
        API_KEY: KEY,
        API_JWT_SECRET: KEY,
        AES_ENCRYPTION_SECRET: 'a secret of exactly 32 bytes....',
        TOPICS: TOPIC,
        REDIS_HOST: '127.0.0.1',
        REDIS_PORT: String(redis),
        POSTGRES_URL: `${postgres.href}?sslmode=disable`,
        RABBITMQ_SERVER_URL: rabbitmq,
        DELIVERY_MAX_CONCURRENCY: AT_A_TIME,
        LOG_MAX_CONCURRENCY: AT_A_TIME,
        MAX_DESTINATIONS_PER_TENANT: String(fleet.members),
        DISABLE_TELEMETRY: 'true',
      };
      const url = `http://127.0.0.1:${port}`;
      const file = pathOf('BENCH_OUTPOST');
      const cwd = processes.data;
      await outputOf(file, ['migrate', 'apply', '--yes'], env, cwd);
      // `outpost serve` only starts outpost-server, which still runs when `outpost serve` has ended. So this starts
      // outpost-server itself.
      const server = file.includes('/') ? join(dirname(file), 'outpost-server') : 'outpost-server';
      const isReady = (): Promise<boolean> => responds(`${url}/healthz`);
      await processes.service({ file: server, env, isReady });
      const headers = { authorization: `Bearer ${KEY}` };
      for (const tenant of meetingsOf(fleet)) await callJson('PUT', `${url}/api/v1/tenants/${tenant}`, headers, {});
      for (const { meeting_id, webhook_url } of membersOf(fleet)) {
        const destination = { type: 'webhook', topics: ['*'], config: { url: webhook_url } };
        await callJson('POST', `${url}/api/v1/tenants/${meeting_id}/destinations`, headers, destination);
      }
      return processes.serve(url, {
        path: '/api/v1/publish',
        headers,
        body: `{"tenant_id":"${MEETING}","topic":"${TOPIC}","data":${MESSAGE}}`,
      });
    }),
};
