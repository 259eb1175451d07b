/** No push goes to a denied range, with 16 random addresses of each range: see urls.test.ts. */
import { hostileUrlsMakeNoConnection } from './urls.ts';

hostileUrlsMakeNoConnection(16, 20_000);
