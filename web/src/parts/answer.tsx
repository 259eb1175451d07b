import type { JSX } from 'preact';
import { Foreign } from './foreign.tsx';

/** What a machine answered to its last failed push. */
export function Answer({ text }: { text: string }): JSX.Element | null {
  const line = text.replaceAll(/\s+/g, ' ').trim();
  if (line === '') return null;
  return (
    <p class="answer">
      Its answer: <Foreign class="answer-text">{line}</Foreign>
    </p>
  );
}
