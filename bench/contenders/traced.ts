/**
 * Convoke with traces on. Convoke sends the traces to a collector in the process of the bench, and the collector throws
 * them away.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Contender } from './contenders.ts';

/** @param env further variables of OpenTelemetry */
export function traced(contender: Contender, name: string, env: Record<string, string> = {}): Contender {
  return {
    ...contender,
    name,
    async start(options) {
      const collector = createServer((request, response) => {
        request.resume().once('end', () => response.end());
      });
      collector.listen(0, '127.0.0.1');
      await once(collector, 'listening');
      const endpoint = `http://127.0.0.1:${(collector.address() as AddressInfo).port}`;
      const running = await contender.start({
        ...options,
        env: { ...options.env, OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, ...env },
      });
      return {
        ...running,
        async stop() {
          await running.stop();
          collector.closeAllConnections();
          collector.close();
        },
      };
    },
  };
}
