/** The signature vectors that every implementation must agree on; see vectors/README.md. */
import { readFileSync } from 'node:fs';

interface Vectors {
  sign: {
    name: string;
    secrets: string[];
    webhook_id: string;
    webhook_timestamp: number;
    body: string;
    webhook_signature: string;
  }[];
  verify: {
    name: string;
    secrets: string[];
    headers: Record<string, string>;
    body: string;
    now_s: number;
    reason: string | null;
  }[];
  invalid_secrets: { name: string; secret: string }[];
}

export const vectors = JSON.parse(
  readFileSync(new URL('../../vectors/signature.json', import.meta.url), 'utf8'),
) as Vectors;
