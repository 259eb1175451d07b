/** Packs JSON texts into lists, each of at most `bytes_max`, as long as no text is longer than that. */
export function packedTexts(texts: readonly string[], bytes_max: number): string[] {
  const lists: string[] = [];
  let list: string[] = [];
  let bytes = 2;
  for (const text of texts) {
    const more = Buffer.byteLength(text) + 1;
    if (bytes + more > bytes_max) {
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
