import '../style/base.css';
import '../style/frame.css';
import '../style/parts.css';
import '../style/reference.css';
import { render } from 'preact';
import { apiDocument, sharedSession } from '../service.ts';
import type { ApiDocument } from './document.ts';
import { Reference } from './reference.tsx';

const root = document.querySelector('#reference') as HTMLElement;

try {
  const needs_key = sharedSession().then(
    ({ state }) => state !== 'open',
    () => false,
  );
  render(<Reference document={(await apiDocument()) as ApiDocument} needs_key={await needs_key} />, root);
  // The browser looked for the target of the address before the page had drawn the target.
  if (location.hash !== '') document.getElementById(location.hash.slice(1))?.scrollIntoView();
} catch (error) {
  render(<p role="alert">The description of the API could not be loaded: {(error as Error).message}</p>, root);
}
