/** Secrets that tests look for in places where no secret may be, in every encoding. */
import { randomBytes } from 'node:crypto';

/** Tests also look for parts of a secret that have this length, because an error may quote a few characters. */
const PART_CHARS = 8;

export interface Canary {
  name: string;
  text: string;
  forms: Map<string, Buffer>;
}

/** Makes a random text that occurs nowhere else. */
export function makeCanary(name: string): Canary {
  return canaryOf(name, randomBytes(24).toString('hex').toUpperCase());
}

/** Makes a webhook secret. Tests look for its base64 and for the bytes that the base64 encodes. */
export function makeSecretCanary(name: string): Canary {
  return secretCanaryOf(name, `whsec_${randomBytes(32).toString('base64')}`);
}

export function secretCanaryOf(name: string, secret: string): Canary {
  return keyCanaryOf(name, secret.slice('whsec_'.length), secret);
}

/** Makes a canary of a key in base64. */
export function keyCanaryOf(name: string, base64: string, text = base64): Canary {
  const bytes = formsOf(Buffer.from(base64, 'base64'));
  const forms = new Map([...bytes].map(([form, value]) => [`its bytes ${form}`, value]));
  for (const [form, value] of canaryOf(name, base64).forms) forms.set(form, value);
  return { name, text, forms };
}

export function canaryOf(name: string, text: string): Canary {
  const forms = formsOf(Buffer.from(text));
  for (let at = 0; at + PART_CHARS <= text.length; at++) {
    forms.set(`in part, from ${at}`, Buffer.from(text.slice(at, at + PART_CHARS)));
  }
  return { name, text, forms };
}

function formsOf(bytes: Buffer): Map<string, Buffer> {
  const hex = bytes.toString('hex');
  const forms: Record<string, string | Buffer> = {
    plain: bytes,
    'in hex': hex,
    'in upper-case hex': hex.toUpperCase(),
    'URL-encoded': encodeURIComponent(bytes.toString('latin1')),
    'URL-encoded, every byte': hex.replaceAll(/../g, (byte) => `%${byte.toUpperCase()}`),
    'as JSON': JSON.stringify(bytes.toString('latin1')).slice(1, -1),
  };
  for (const encoding of ['base64', 'base64url'] as const) {
    // When the value is a part of longer bytes, its base64 depends on its offset: there are three cases. This leaves
    // out characters that also depend on the neighbouring bytes.
    for (const before of [0, 1, 2]) {
      const text = Buffer.concat([Buffer.alloc(before), bytes])
        .toString(encoding)
        .replace(/=+$/, '');
      forms[`in ${encoding} after ${before}`] = text.slice(before === 0 ? 0 : before + 1, -2);
    }
  }
  return new Map(Object.entries(forms).map(([form, value]) => [form, Buffer.from(value)]));
}

/** Looks for canaries in texts. Returns which canary is where; empty when no text has one. */
export function findCanaries(canaries: readonly Canary[], texts: ReadonlyMap<string, Buffer>): string[] {
  const found: string[] = [];
  for (const [where, bytes] of texts) {
    for (const { name, forms } of canaries) {
      const form = [...forms].find(([, value]) => bytes.includes(value));
      if (form !== undefined) found.push(`${name}, ${form[0]}, in ${where}`);
    }
  }
  return found;
}
