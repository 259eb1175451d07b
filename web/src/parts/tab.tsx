/** The title of the browser's tab. */
import { useEffect } from 'preact/hooks';
import { lost_since } from '../lost.ts';
import { Observable, useObservable } from '../observable.ts';

const title = new Observable('');

/** Names the tab after what it shows. */
export function useTitle(text: string): void {
  useEffect(() => void (title.value = text), [text]);
}

/** Writes the title, with a mark in front while something is wrong: a tab shows only its beginning. */
export function TabTitle(): null {
  const text = useObservable(title);
  const mark = useObservable(lost_since) === null ? '' : '(not connected) ';
  useEffect(() => void (document.title = `${mark}${text} · Convoke`), [mark, text]);
  return null;
}
