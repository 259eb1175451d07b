/** The progress of a copy, in pages of the engine. All pages have one size. */
export interface BackupProgress {
  pages_total: number;
  pages_left: number;
}

/** Copies of all the data. They are made one at a time, while the service runs. */
export interface BackupStore {
  /**
   * Begins a copy that will hold everything that is stored now. Rejects with `backup_under_way` and `backup_no_room`.
   */
  begin(): Promise<{ backup_id: string }>;
  /**
   * Waits for a copy, at most `wait_ms`. When the copy is whole, `path` names its file, and the caller must remove that
   * file. Rejects when the copy fails during the call. Null when there is no such copy: an earlier call got the copy,
   * the copy failed earlier, or no call has asked for the copy for a minute.
   */
  wait(backup_id: string, wait_ms: number): Promise<(BackupProgress & { path: string | null }) | null>;
}
