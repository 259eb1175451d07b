/**
 * Makes a year of data, for trials by hand. load/year.ts describes the data.
 *
 *     node bench/programs/year.ts --data DIRECTORY [--messages 10000000] [--instances 100000]
 *     node bench/programs/year.ts --data DIRECTORY --database-url URL [...]
 *
 * The directory and the database must be empty. Afterwards `convoke serve --data DIRECTORY` runs on the data. Set
 * CONVOKE_RETENTION_DELIVERIES and CONVOKE_RETENTION_MESSAGES to more than a year: otherwise the service removes old
 * rows.
 */
import { parseArgs } from 'node:util';
import { yearInto } from '../load/year.ts';

const { values } = parseArgs({
  options: {
    data: { type: 'string' },
    'database-url': { type: 'string' },
    messages: { type: 'string', default: '10000000' },
    instances: { type: 'string', default: '100000' },
  },
});
if (values.data === undefined) throw new Error('--data says where');
const started_ms = performance.now();
await yearInto({
  data: values.data,
  url: values['database-url'] ?? null,
  messages: Number(values.messages),
  instances: Number(values.instances),
  origin: 'http://127.0.0.1:1',
  onProgress: (messages) =>
    console.error(`${messages} messages, ${Math.round((performance.now() - started_ms) / 1000)} s`),
});
