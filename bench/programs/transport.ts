/**
 * Measures what a push through Convoke's webhook transport costs, compared with undici's bare `dispatch`. The transport
 * and `dispatch` take turns. They send the same POSTs from one event loop to one receiver, a child process that
 * responds 200. The program prints the rates of each round, and the medians. When other programs share the machine, the
 * processor time per push says more than the rate.
 *
 *   node bench/programs/transport.ts [rounds] [pushes per round] [instances] [in flight per instance]
 */
import { fork } from 'node:child_process';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { Pool } from 'undici';
import { createWebhookTransport } from '../../src/delivery/transport/webhook_transport.ts';

const BODY = Buffer.from(
  JSON.stringify({
    event: 'message',
    meeting_id: 'bench',
    message: { id: 'm1', text: 'x'.repeat(400) },
    target_agents: ['a'],
    timestamp: '2030-01-01T00:00:00.000Z',
  }),
);
const HEADERS = {
  'content-type': 'application/json',
  'user-agent': 'Convoke/bench',
  'webhook-id': 'dlv_01J0000000000000000000000',
  'webhook-timestamp': '1893456000',
  'webhook-signature': 'v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=',
  'idempotency-key': 'dlv_01J0000000000000000000000',
  'convoke-message-id': 'msg_01J0000000000000000000000',
  'convoke-seq': '1',
  'convoke-attempt': '1',
};

if (process.argv[2] === 'receive') receive();
else await compare();

async function compare(): Promise<void> {
  const [rounds = 7, pushes = 40_000, instances = 25, in_flight = 4] = process.argv.slice(2).map(Number);
  const receiver = fork(fileURLToPath(import.meta.url), ['receive']);
  const port = await new Promise<number>((resolve) => receiver.once('message', (said) => resolve(Number(said))));
  const origin = `http://127.0.0.1:${port}`;

  const transport = createWebhookTransport({ policy: { mode: 'local', allow: [], allow_http: true } });
  const pools = Array.from({ length: instances }, () => new Pool(origin, { connections: in_flight, allowH2: false }));
  const options = { path: '/hook', method: 'POST', headers: HEADERS, body: BODY } as const;
  const contenders: Record<string, (instance: number) => Promise<unknown>> = {
    'bare dispatch': (instance) =>
      new Promise<void>((resolve, reject) => {
        pools[instance]!.dispatch(options, {
          onRequestStart() {},
          onResponseStart() {},
          onResponseData() {},
          onResponseEnd: () => resolve(),
          onResponseError: (_controller, error) => reject(error),
        });
      }),
    transport: async (instance) => {
      const { outcome, detail } = await transport.push({
        instance_id: `instance-${instance}`,
        url: `${origin}/hook`,
        headers: HEADERS,
        body: BODY,
        success_statuses: '200',
      });
      if (outcome !== 'ok') throw new Error(`${outcome}: ${detail}`);
    },
  };

  const measured: Record<string, Measurement[]> = {};
  for (let round = 0; round <= rounds; round++) {
    const names = Object.keys(contenders);
    if (round % 2 === 1) names.reverse();
    for (const name of names) {
      const result = await measure(contenders[name]!, pushes, instances, in_flight);
      // The first round warms up.
      if (round === 0) continue;
      (measured[name] ??= []).push(result);
      print(name, result);
    }
  }
  console.log(`median of ${rounds}`);
  for (const [name, results] of Object.entries(measured)) {
    print(name, {
      pushes_per_s: median(results.map(({ pushes_per_s }) => pushes_per_s)),
      cpu_us_per_push: median(results.map(({ cpu_us_per_push }) => cpu_us_per_push)),
    });
  }
  await transport.close();
  await Promise.all(pools.map((pool) => pool.destroy()));
  receiver.disconnect();
}

interface Measurement {
  pushes_per_s: number;
  cpu_us_per_push: number;
}

function print(name: string, { pushes_per_s, cpu_us_per_push }: Measurement): void {
  console.log(
    `${name.padEnd(14)} ${pushes_per_s.toFixed(0).padStart(7)} pushes/s ${cpu_us_per_push.toFixed(1).padStart(6)} us of CPU per push`,
  );
}

function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}

/** Keeps `in_flight` pushes in flight to each instance, until `pushes` are made in all. */
async function measure(
  push: (instance: number) => Promise<unknown>,
  pushes: number,
  instances: number,
  in_flight: number,
): Promise<Measurement> {
  let left = pushes;
  const started_at_ms = performance.now();
  const cpu_before = process.cpuUsage();
  const pushInTurn = async (instance: number) => {
    while (left-- > 0) await push(instance);
  };
  await Promise.all(Array.from({ length: instances * in_flight }, (_, i) => pushInTurn(i % instances)));
  const { user, system } = process.cpuUsage(cpu_before);
  return {
    pushes_per_s: pushes / ((performance.now() - started_at_ms) / 1000),
    cpu_us_per_push: (user + system) / pushes,
  };
}

/**
 * Responds to each request as soon as its body has arrived. All requests have the length of the first one, so the
 * receiver only counts bytes, which costs next to nothing.
 */
function receive(): void {
  const answer = Buffer.from(
    'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}',
  );
  const server = createServer({ noDelay: true }, (socket) => {
    let bytes = 0;
    let request_bytes = 0;
    socket.on('error', () => socket.destroy());
    socket.on('data', (chunk) => {
      bytes += chunk.length;
      if (request_bytes === 0) request_bytes = chunk.indexOf('\r\n\r\n') + 4 + BODY.length;
      for (; bytes >= request_bytes; bytes -= request_bytes) socket.write(answer);
    });
  });
  server.listen(0, '127.0.0.1', () => process.send!((server.address() as { port: number }).port));
  process.once('disconnect', () => process.exit());
}
