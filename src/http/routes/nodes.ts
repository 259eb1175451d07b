import type { Clock } from '../../delivery/clock.ts';
import type { NodeIdentity } from '../../delivery/cluster/partitions.ts';
import { assertNoMeetingLimit } from '../../domain/access.ts';
import { PARTITIONS } from '../../domain/partition.ts';
import type { NodeRow } from '../../store/contract/cluster.ts';
import type { Store } from '../../store/store.ts';
import { responses } from '../responses.ts';
import type { App, RequestFor, RouteShape } from '../context.ts';
import { NodeListSchema } from '../schemas/nodes.ts';
import { wireNode } from '../wire.ts';

/** The facts about this process that other nodes see. */
export interface ThisNode extends NodeIdentity {
  started_at: number;
}

export interface NodeContext {
  store: Pick<Store, 'cluster'>;
  clock: Clock;
  node: ThisNode;
}

export function nodeRoutes(app: App, context: NodeContext): void {
  app.get('/api/v1/nodes/', LIST_NODES, (request) => listNodes(context, request));
}

const LIST_NODES = {
  config: { access: ['read'] },
  schema: {
    operationId: 'listNodes',
    tags: ['service'],
    summary: 'The nodes that share the store, and how many partitions each holds',
    description:
      'Instances fall into 64 partitions. The node that holds a partition delivers to its instances. Without PostgreSQL there is one node, which holds all partitions.',
    response: responses({
      200: ['The nodes, in the order in which they joined.', NodeListSchema],
      codes: [],
    }),
  },
} satisfies RouteShape;

async function listNodes({ store, clock, node }: NodeContext, { principal }: RequestFor<typeof LIST_NODES>) {
  assertNoMeetingLimit(principal);
  const rows = await rowsOf(store, node, clock.wall());
  // Every node renews its lease every 3 s. So the latest time at which any node was seen is about now, on the clock of
  // the leases.
  const now = Math.max(...rows.map(({ seen_at }) => seen_at));
  return { data: rows.toSorted((a, b) => a.node_no - b.node_no).map((row) => wireNode(row, now)) };
}

async function rowsOf(
  { cluster }: NodeContext['store'],
  { node_id, version, started_at, address }: ThisNode,
  wall_ms: number,
) {
  if (cluster !== null) return cluster.list();
  const alone: NodeRow = {
    node_id,
    node_no: 1,
    version,
    address: address(),
    started_at,
    seen_at: wall_ms,
    lease_until: Infinity,
    stopping: false,
    partition_count: PARTITIONS,
  };
  return [alone];
}
