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
   * Waits until a copy is whole, at most `wait_ms`. Rejects when the copy has failed. Null when there is no such copy:
   * someone took it, another one was begun after it failed, or no call has asked for it for a minute.
   */
  wait(backup_id: string, wait_ms: number): Promise<(BackupProgress & { is_whole: boolean }) | null>;
  /**
   * Takes a whole copy. Returns an open descriptor of its file, which the caller must close. The file has no name any
   * more, so nothing is left of it then. Null when there is no such copy any more.
   */
  take(backup_id: string): number | null;
}
