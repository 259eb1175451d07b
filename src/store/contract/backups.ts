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
   * Waits for a copy, at most `wait_ms`. When the copy is whole, `path` names its file, and the caller must remove that
   * file. Rejects when the copy fails during the call. Null when there is no such copy: an earlier call got it, it
   * failed earlier, or no call has waited for it for a minute.
   */
  wait(backup_id: string, wait_ms: number): Promise<(BackupProgress & { path: string | null }) | null>;
}
