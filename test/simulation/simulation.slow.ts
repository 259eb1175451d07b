/** The promises in more simulated worlds than `npm test` has time for: see simulation.test.ts. */
import { promisesHold } from './promises.ts';

promisesHold({ with_one_node: 150, with_several_nodes: 40, on_sqlite: 60 });
