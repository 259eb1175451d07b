import { distance } from 'fastest-levenshtein';

/** The known name that a mistyped one most likely stands for; null when none is near. */
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
