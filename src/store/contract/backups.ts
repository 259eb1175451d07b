/** The progress of a copy, in pages of the engine. All pages have one size. */
export interface BackupProgress {
  pages_total: number;
  pages_left: number;
}

/** Copies of all the data, made while the service runs; one at a time. */
export interface BackupStore {
  /**
   * Begins a copy that will hold everything that is stored now. Rejects with `backup_under_way` and `backup_no_room`.
   */
  begin(): Promise<{ backup_id: string }>;
  /**
   * Waits for a copy, at most `wait_ms`. When there is a `path`, the copy is whole, and the caller must remove it. Null
   * when there is no such copy: it was handed over, it failed before, or a minute passed without a call.
   */
  wait(backup_id: string, wait_ms: number): Promise<(BackupProgress & { path: string | null }) | null>;
}
