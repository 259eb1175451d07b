/** Lists that a result of the database has as JSON text; null where a list would be empty. */

export function numbersIn(json: string | null): number[] {
  return json === null ? [] : (JSON.parse(json) as number[]);
}

export function textsIn(json: string | null): string[] {
  return json === null ? [] : (JSON.parse(json) as string[]);
}
