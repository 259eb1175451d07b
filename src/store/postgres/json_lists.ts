/** Lists that the database returns as JSON text; null when a list would be empty. */

export function numbersIn(json: string | null): number[] {
  return json === null ? [] : (JSON.parse(json) as number[]);
}

export function textsIn(json: string | null): string[] {
  return json === null ? [] : (JSON.parse(json) as string[]);
}
