/** How much of the data file is in use. */
export interface FileSpace {
  page_bytes: number;
  pages: number;
  free_pages: number;
  /** Whether the file can get smaller while it is in use. */
  gives_back: boolean;
}

/** The data file, for an engine that keeps all data in one file. */
export interface FileStore {
  space(): Promise<FileSpace>;
  /** Gives at most `pages_max` free pages back to the disk, within about `ms_max`. Gives none while a copy is made. */
  giveBack(pages_max: number, ms_max: number): Promise<FileSpace & { given_back: number }>;
  /** Shortens the file by the pages that were given back. */
  cutOff(): Promise<void>;
}
