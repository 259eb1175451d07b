/** The schema of the data. */
export interface SchemaState {
  /** How many steps it has taken. */
  present: number;
  /** How many this program knows. */
  wanted: number;
  /**
   * After when nodes end an upgrade that cannot be taken back afterwards, in milliseconds since the epoch; absent when
   * none has to end.
   */
  upgrade_ends_at?: number;
}
