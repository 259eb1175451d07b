/** How much of the data file is in use. */
export interface FileSpace {
  page_bytes: number;
  pages: number;
  free_pages: number;
  /** Whether it can get smaller while it is in use. */
  gives_back: boolean;
}

/** The data file, for an engine that keeps everything in one. */
export interface FileStore {
  space(): Promise<FileSpace>;
  /** Gives free pages back to the disk, at most this many and for this long; none while a copy is made. */
  giveBack(pages_max: number, ms_max: number): Promise<FileSpace & { given_back: number }>;
  /** Cuts the pages that were given back off the end of the file. */
  cutOff(): Promise<void>;
}
