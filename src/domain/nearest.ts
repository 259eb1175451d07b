/** The known name that is most similar to a mistyped name; null when no known name is similar. */
export function nearestName(name: string, known: readonly string[]): string | null {
  let nearest: string | null = null;
  let nearest_distance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const candidate_distance = distance(name.toLowerCase(), candidate.toLowerCase());
    if (candidate_distance < nearest_distance) {
      nearest = candidate;
      nearest_distance = candidate_distance;
    }
  }
  return nearest;
}

/** Levenshtein's distance: the characters to insert, delete or replace until one name is the other. */
function distance(from: string, to: string): number {
  let above = Array.from({ length: to.length + 1 }, (_, i) => i);
  for (let row = 1; row <= from.length; row++) {
    const current = [row];
    for (let column = 1; column <= to.length; column++) {
      const replaced = above[column - 1]! + (from[row - 1] === to[column - 1] ? 0 : 1);
      current.push(Math.min(replaced, above[column]! + 1, current[column - 1]! + 1));
    }
    above = current;
  }
  return above.at(-1)!;
}
