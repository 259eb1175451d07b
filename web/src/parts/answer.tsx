import type { JSX } from 'preact';
import { onOneLine } from '../format.ts';
import { Foreign } from './foreign.tsx';

/**
 * The response of a machine to its last failed push. @param is_example whether the response stands for several machines
 */
export function Answer({ text, is_example = false }: { text: string; is_example?: boolean }): JSX.Element | null {
  const line = onOneLine(text);
  if (line === '') return null;
  return (
    <p class="answer">
      {is_example ? 'One answer:' : 'Its answer:'} <Foreign class="answer-text">{line}</Foreign>
    </p>
  );
}
