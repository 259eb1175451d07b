/** Convoke with its default settings, for the scenarios in scenarios/beside.ts. */
import { endProcess, startService } from '../contenders/contenders.ts';
import { type Home, onPostgres, onSqlite } from '../contenders/homes.ts';
import type { WebhookServer } from './server.ts';

function convokeOn(name: string, home: Home): WebhookServer {
  return {
    name,
    missing: () => null,
    async start(fleet) {
      const { data, env, pids, leave } = await home([{ fleet, pending_messages: 0 }]);
      let service = await startService(data, { env });
      const { url } = service;
      return {
        url,
        pids: () => [...service.pids, ...pids],
        async killAndRestart() {
          await endProcess(service.probe, 'SIGKILL');
          service = await startService(data, { env, port: Number(new URL(url).port) });
        },
        async stop() {
          await endProcess(service.probe);
          await leave();
        },
      };
    },
  };
}

export const convokeOnSqlite = convokeOn('Convoke', onSqlite);
export const convokeOnPostgres = convokeOn('Convoke, PostgreSQL', onPostgres);
