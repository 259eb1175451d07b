/** The schema of the data. */
export interface SchemaState {
  /** How many steps of the migrations the schema has taken. */
  present: number;
  /** How many steps this program knows. */
  wanted: number;
  /**
   * From this time on, nodes may end an upgrade. After the end of the upgrade, nobody can go back to the previous
   * version. In milliseconds since the epoch; absent when no upgrade has to end.
   */
  upgrade_ends_at?: number;
}
