/** What nodes exclude each other from, beside rows: advisory locks of the database, all under the first number. */

const CONVOKE = 0x636f6e76;

/** Bringing the schema up to date, and agreeing on the data key. */
export const MIGRATION = `${CONVOKE}, 1`;
/** Taking numbers for messages and deliveries: for microseconds. */
export const NUMBERS = `${CONVOKE}, 2`;
/** Removing an instance; shared by whoever accepts messages, so that nothing is stored for one that is being removed. */
export const REMOVAL = `${CONVOKE}, 3`;
/** Partitions change hands; shared by whoever settles, so that an epoch holds until what was settled under it is there. */
export const TAKEOVER = `${CONVOKE}, 4`;
/** Leases are renewed one after the other. */
export const LEASES = `${CONVOKE}, 5`;
/** Keys change one after the other, in the order of their change_no. */
export const KEYS = `${CONVOKE}, 6`;
