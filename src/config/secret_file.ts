import { readFileSync } from 'node:fs';

/**
 * The secret in a file, as Docker and Kubernetes mount one. A line break at its end is no part of the secret, because
 * editors and `openssl` write one.
 *
 * @returns the secret, or what to do about the file that has none
 */
export function readSecretFile(path: string): { value: string } | { fault: string } {
  try {
    const value = readFileSync(path, 'utf8').replace(/\r?\n$/, '');
    return value === '' ? { fault: `${path} is empty; put the secret into it` } : { value };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return { fault: `there is no ${path}; give the path of the file that holds the secret` };
    if (code === 'EISDIR') return { fault: `${path} is a directory; give the path of the file in it` };
    if (code === 'EACCES') return { fault: `${path} cannot be read (EACCES); let the user of this process read it` };
    return { fault: `${path} cannot be read (${code}); give the path of the file that holds the secret` };
  }
}
