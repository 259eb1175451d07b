/** Lists that an answer of the database has as JSON text; null where there was nothing to put into one. */

export function numbersIn(json: string | null): number[] {
  return json === null ? [] : (JSON.parse(json) as number[]);
}

export function textsIn(json: string | null): string[] {
  return json === null ? [] : (JSON.parse(json) as string[]);
}
