/** Everything that depends on a token ends with it on the other node as well: see end_of_trust.ts. */
import { endsWithItsToken } from './end_of_trust.ts';

endsWithItsToken('PostgreSQL');
