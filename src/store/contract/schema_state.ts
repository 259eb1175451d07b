/** The schema of the data. */
export interface SchemaState {
  /** How many steps of the migrations the schema has taken. */
  present: number;
  /** How many steps this program knows. */
  wanted: number;
  /** Whether this program may start. False only on a schema that a newer version made. */
  may_start: boolean;
  /**
   * From this time on, nodes may end an upgrade. After the end of the upgrade, nobody can go back to the previous
   * version. In milliseconds since the epoch; absent when no upgrade has to end.
   */
  upgrade_ends_at?: number;
  /** The nodes of the previous version. The upgrade does not end before they are gone. Empty when there are none. */
  upgrade_waits_for: WaitedNode[];
}

export interface WaitedNode {
  node_id: string;
  address: string;
  /** The wall clock of the database at its last sign of life, in milliseconds since the epoch. */
  seen_at: number;
}
