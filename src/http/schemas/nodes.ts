import Type from 'typebox';
import { enumOf, named, time } from './fields.ts';

export const NodeSchema = Type.Object(
  {
    node_id: Type.String({ description: 'The host name of the node, and a part that is new with every start.' }),
    version: Type.String({ description: 'The version of Convoke that it runs.' }),
    address: Type.String({
      description: 'The URL at which it serves requests: CONVOKE_ADVERTISED_URL, or the address that it listens on.',
    }),
    started_at: time('When it joined.'),
    last_seen_at: time('When it last renewed its lease: every 3 s.'),
    state: enumOf(['up', 'stopping', 'lost'] as const, {
      description:
        '`stopping`: it releases its partitions; `lost`: it has not renewed its lease for 15 s, and the others take over.',
    }),
    partitions: Type.Integer({ description: 'How many of the 64 partitions it holds.' }),
  },
  named('ServiceNode', 'One running process of the service.'),
);

export const NodeListSchema = Type.Object(
  { data: Type.Array(NodeSchema, { description: 'In the order in which they joined.' }) },
  named('ServiceNodeList', 'The nodes that share the store.'),
);
