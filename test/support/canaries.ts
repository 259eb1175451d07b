/** Secrets that tests look for wherever they must not be, in every form that they could have there. */
import { randomBytes } from 'node:crypto';

/** Parts of a secret of this length are searched too, because an error may quote a few characters. */
const PART_CHARS = 8;

export interface Canary {
  name: string;
  text: string;
  forms: Map<string, Buffer>;
}

/** A text that occurs nowhere else. */
export function makeCanary(name: string): Canary {
  return canaryOf(name, randomBytes(24).toString('hex').toUpperCase());
}

/** A webhook secret: its base64 is searched, and the bytes that it encodes. */
export function makeSecretCanary(name: string): Canary {
  return secretCanaryOf(name, `whsec_${randomBytes(32).toString('base64')}`);
}

export function secretCanaryOf(name: string, secret: string): Canary {
  return keyCanaryOf(name, secret.slice('whsec_'.length), secret);
}

/** A key, given by its base64. */
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
    // Within a longer text, base64 of the value begins at one of three offsets; characters that depend on the
    // neighbours are left out.
    for (const before of [0, 1, 2]) {
      const text = Buffer.concat([Buffer.alloc(before), bytes])
        .toString(encoding)
        .replace(/=+$/, '');
      forms[`in ${encoding} after ${before}`] = text.slice(before === 0 ? 0 : before + 1, -2);
    }
  }
  return new Map(Object.entries(forms).map(([form, value]) => [form, Buffer.from(value)]));
}

/** The canaries that were found, and where; empty when there are none. */
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
