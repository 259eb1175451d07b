/** What a team would build instead. */
import type { Contender } from './contenders.ts';

export const PEERS: Contender[] = [];
