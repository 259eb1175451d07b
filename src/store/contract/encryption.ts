/** The data key that encrypts the stored secrets. It can be changed while the service runs. */
export interface EncryptionStore {
  /**
   * The key that encrypts now, and while the key is being changed also the previous keys, because some secrets may
   * still be encrypted under them.
   */
  keyIds(): Promise<{ key_id: string; previous_key_ids: string[] }>;
  /**
   * Makes a new key, which encrypts from now on. When a change is in progress, continues that change. Rejects with
   * `encryption_key_given` when the key is a setting, and with `encryption_key_not_shared` when a running node encrypts
   * under another key: what that node writes later would stay under that key. Rejects with `encryption_key_not_written`
   * when the key file cannot be replaced.
   */
  changeKey(wall_ms: number): Promise<{ key_id: string; previous_key_ids: string[] }>;
  /**
   * Encrypts again the secrets of at most `limit` instances that follow `after`. `unreadable` are those whose secrets no
   * key decrypts: their rows stay as they are. `next` is where to continue; null at the end.
   */
  reencrypt(
    after: string | null,
    limit: number,
  ): Promise<{ rewritten: number; unreadable: string[]; next: string | null }>;
  /** Records that no row is encrypted under a previous key any more. Rejects when some row still is. */
  endChange(): Promise<void>;
  /**
   * Derives keys for another purpose, as base64: one from each data key, in the order of the data keys. The first data
   * key is the one that encrypts. The derived keys are the same on all nodes, and after every start.
   */
  derivedKeys(purpose: string): Promise<string[]>;
  /** Drops the previous data key. Call it when the record that `endChange()` wrote is on disk. */
  forgetPreviousKey(): Promise<void>;
}
