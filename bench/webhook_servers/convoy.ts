/**
 * Convoy, https://github.com/frain-dev/convoy, without a licence, with its Redis queue: `convoy server` takes messages,
 * and `convoy agent` pushes them. Its analytics are off. Its settings and requests are as convoy.env.example,
 * cmd/bootstrap and docs/v3/openapi3.yaml of that repository describe them.
 */
import { freePort } from '../../test/support/free_port.ts';
import { membersOf } from '../load/fleet.ts';
import { MEETING, MESSAGE } from '../load/request.ts';
import { callJson, missingOf, outputOf, pathOf, Processes, responds } from './programs.ts';
import type { WebhookServer } from './server.ts';

interface Answer<Data> {
  data: Data;
}

export const convoy: WebhookServer = {
  name: 'Convoy',
  missing: () => missingOf('BENCH_CONVOY', 'BENCH_REDIS'),
  start: (fleet) =>
    Processes.run(async (processes) => {
      const file = pathOf('BENCH_CONVOY');
      const [postgres, redis] = [await processes.postgres(), await processes.redis()];
      const [port, agent_port, ingest_port] = [await freePort(), await freePort(), await freePort()];
      const env = {
        PORT: String(port),
        AGENT_PORT: String(agent_port),
        INGEST_PORT: String(ingest_port),
        CONVOY_HOST: `127.0.0.1:${port}`,
        CONVOY_DB_HOST: postgres.hostname,
        CONVOY_DB_PORT: postgres.port,
        CONVOY_DB_USERNAME: postgres.username,
        CONVOY_DB_PASSWORD: postgres.password,
        CONVOY_DB_DATABASE: postgres.pathname.slice(1),
        CONVOY_DB_OPTIONS: 'sslmode=disable&connect_timeout=30',
        CONVOY_REDIS_HOST: '127.0.0.1',
        CONVOY_REDIS_PORT: String(redis),
        CONVOY_JWT_SECRET: 'bench',
        CONVOY_JWT_REFRESH_SECRET: 'bench',
        CONVOY_NATIVE_REALM_ENABLED: 'true',
        CONVOY_DISPATCHER_ALLOW_LIST: '127.0.0.0/8',
        CONVOY_DISPATCHER_BLOCK_LIST: '',
        CONVOY_DISPATCHER_SKIP_PING_VALIDATION: 'true',
        CONVOY_ANALYTICS_ENABLED: 'false',
      };
      const cwd = processes.data;
      const url = `http://127.0.0.1:${port}`;
      await outputOf(file, ['migrate', 'up'], env, cwd);
      const boot = await outputOf(file, ['bootstrap', '--email', 'bench@example.test', '--with-api-key'], env, cwd);
      const { organisation_id, api_key } = JSON.parse(boot.slice(boot.indexOf('{'))) as Record<string, string>;
      await processes.service({ file, args: ['server'], env, isReady: () => responds(`${url}/healthz`) });
      const isReady = (): Promise<boolean> => responds(`http://127.0.0.1:${agent_port}/healthz`);
      await processes.service({ file, args: ['agent'], env, isReady });
      const headers = { authorization: `Bearer ${api_key}` };
      const { data } = await callJson<Answer<{ project: { uid: string } }>>(
        'POST',
        `${url}/api/v1/projects?orgID=${organisation_id}`,
        headers,
        { name: 'bench', type: 'outgoing', config: { ssl: { enforce_secure_endpoints: false } } },
      );
      const project = `/api/v1/projects/${data.project.uid}`;
      for (const { instance_id, meeting_id, webhook_url } of membersOf(fleet)) {
        const endpoint = { name: instance_id, url: webhook_url, owner_id: meeting_id };
        const made = await callJson<Answer<{ uid: string }>>('POST', `${url}${project}/endpoints`, headers, endpoint);
        const subscription = { name: instance_id, endpoint_id: made.data.uid };
        await callJson('POST', `${url}${project}/subscriptions`, headers, subscription);
      }
      return processes.serve(url, {
        path: `${project}/events/fanout`,
        headers,
        body: `{"owner_id":"${MEETING}","event_type":"message.created","data":${MESSAGE}}`,
      });
    }),
};
