/** The advisory locks of the database, by which nodes exclude each other, and how long nodes wait for a table. */

/**
 * How long a change of the schema waits for the lock of a table, while all others wait behind it. Autovacuum gives up
 * its lock for others after one second, so this time is long enough.
 */
export const LOCK_TIMEOUT_MS = 1_500;

/** The first number of all advisory locks. */
const CONVOKE = 0x636f6e76;

/** Held to bring the schema up to date, and to agree on the data key. */
export const MIGRATION = `${CONVOKE}, 1`;
/** Held to take numbers for messages and deliveries. A node holds it only for microseconds. */
export const NUMBERS = `${CONVOKE}, 2`;
/** Held to remove an instance. Accepts share it, so that they store nothing for an instance that is being removed. */
export const REMOVAL = `${CONVOKE}, 3`;
/** Held to take partitions. Settlements share it, so an epoch changes only while no settlement is being stored. */
export const TAKEOVER = `${CONVOKE}, 4`;
/** Held to renew a lease, so that renewals run one after the other. */
export const LEASES = `${CONVOKE}, 5`;
/** Held to change keys and invites, so that changes run one after the other, in the order of change_no. */
export const KEYS = `${CONVOKE}, 6`;
/** Held to sweep deliveries: one node at a time. */
export const SWEEP = `${CONVOKE}, 7`;
/** Held by the node that ends an upgrade. */
export const UPGRADE = `${CONVOKE}, 8`;
