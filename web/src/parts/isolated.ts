/**
 * The places of values that no line shows, because both neighbours are unknown. Null is unknown; undefined is no value
 * at all, and a line goes across it.
 */
export function isolated(values: readonly (number | null | undefined)[]): number[] {
  const known = values.flatMap((value, place) => (value === undefined ? [] : [{ value, place }]));
  return known.flatMap(({ value, place }, i) => {
    const has_neighbour = [known[i - 1], known[i + 1]].some((each) => typeof each?.value === 'number');
    return value === null || has_neighbour ? [] : [place];
  });
}
