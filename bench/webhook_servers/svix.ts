/**
 * Svix, https://github.com/svix/svix-webhooks, with its memory cache and its Redis queue; otherwise with its defaults.
 * Its settings and requests are as server/README.md of that repository and https://api.svix.com/docs describe them.
 */
import { freePort } from '../../test/support/free_port.ts';
import { meetingsOf, membersOf } from '../load/fleet.ts';
import { MEETING, MESSAGE } from '../load/request.ts';
import { callJson, missingOf, outputOf, pathOf, Processes, responds } from './programs.ts';
import type { WebhookServer } from './server.ts';

export const svix: WebhookServer = {
  name: 'Svix',
  missing: () => missingOf('BENCH_SVIX', 'BENCH_REDIS'),
  start: (fleet) =>
    Processes.run(async (processes) => {
      const file = pathOf('BENCH_SVIX');
      const [postgres, redis, port] = [await processes.postgres(), await processes.redis(), await freePort()];
      const env = {
        SVIX_LISTEN_ADDRESS: `127.0.0.1:${port}`,
        SVIX_DB_DSN: postgres.href,
        // PostgreSQL accepts a hundred connections, and reserves a few of them for administrators.
        SVIX_DB_POOL_MAX_SIZE: '90',
        SVIX_REDIS_DSN: `redis://127.0.0.1:${redis}`,
        SVIX_QUEUE_TYPE: 'redis',
        SVIX_CACHE_TYPE: 'memory',
        SVIX_JWT_SECRET: 'bench',
        SVIX_WHITELIST_SUBNETS: '[127.0.0.0/8]',
      };
      const url = `http://127.0.0.1:${port}`;
      const cwd = processes.data;
      const isReady = (): Promise<boolean> => responds(`${url}/api/v1/health`);
      await processes.service({ file, args: ['--run-migrations'], env, isReady });
      const token = /Token \(Bearer\): (\S+)/.exec(await outputOf(file, ['jwt', 'generate'], env, cwd))![1]!;
      const headers = { authorization: `Bearer ${token}` };
      for (const uid of meetingsOf(fleet)) await callJson('POST', `${url}/api/v1/app`, headers, { name: uid, uid });
      for (const { meeting_id, webhook_url } of membersOf(fleet)) {
        await callJson('POST', `${url}/api/v1/app/${meeting_id}/endpoint`, headers, { url: webhook_url });
      }
      return processes.serve(url, {
        path: `/api/v1/app/${MEETING}/msg`,
        headers,
        body: `{"eventType":"message.created","payload":${MESSAGE}}`,
      });
    }),
};
