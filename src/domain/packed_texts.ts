/**
 * Packs JSON texts into JSON lists of at most `bytes_max` bytes each, brackets included. A text that is too long for
 * such a list gets a list of its own, which is longer than `bytes_max`.
 */
export function packedTexts(texts: readonly string[], bytes_max: number): string[] {
  const lists: string[] = [];
  let list: string[] = [];
  let bytes = 2;
  for (const text of texts) {
    const more = Buffer.byteLength(text) + 1;
    if (bytes + more > bytes_max && list.length > 0) {
      lists.push(`[${list.join(',')}]`);
      list = [];
      bytes = 2;
    }
    list.push(text);
    bytes += more;
  }
  if (list.length > 0) lists.push(`[${list.join(',')}]`);
  return lists;
}
