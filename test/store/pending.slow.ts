/** Pending deliveries are found in a long log of random commands as well: see pending.test.ts. */
import { answersAsWithoutSweeps } from './pending.ts';

answersAsWithoutSweeps(400);
