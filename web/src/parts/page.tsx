/** The frame of a view: its title, its actions, a list and, beside it, the chosen item. */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { shown } from '../format.ts';
import { followed } from '../keyboard.ts';
import { filterBy } from '../router.ts';
import { Observable, useObservable } from '../observable.ts';
import { Icon } from './icons.tsx';
import { useTitle } from './tab.tsx';

interface PageProps {
  title: string;
  /** What the page shows between its title and its actions, for example filters. */
  tools?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
  /** The chosen item: shown beside the list, or in place of the list on a narrow screen. */
  detail?: ComponentChildren;
}

export function Page({ title, tools, actions, children, detail }: PageProps): JSX.Element {
  // The item that is open beside the list gives the tab its title.
  useTitle(useObservable(opened) ?? title);
  return (
    <div class={detail ? 'page has-detail' : 'page'}>
      <section class="page-list" aria-label={title}>
        <header class="page-head">
          <h1>{shown(title)}</h1>
          <div class="page-tools">{tools}</div>
          <div class="page-actions">{actions}</div>
        </header>
        <div class="page-body">{children}</div>
      </section>
      {detail}
    </div>
  );
}

/** The name of the item that is open beside the list; null while no item is open. */
const opened = new Observable<string | null>(null);

interface DetailProps {
  title: ComponentChildren;
  /** The name that screen readers say. */
  label: string;
  /** The address that opens when somebody closes the item. */
  back: string;
  back_label: string;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

export function Detail({ title, label, back, back_label, actions, children }: DetailProps): JSX.Element {
  const body = useRef<HTMLElement>(null);
  useEffect(() => {
    opened.value = label;
    return () => {
      if (opened.value === label) opened.value = null;
    };
  }, [label]);
  // Runs before the browser paints, because a user may press Tab as soon as the item is there.
  useLayoutEffect(() => {
    body.current?.scrollTo(0, 0);
    // With the focus in the item, Tab moves to the actions of the item, and Escape leads back to the row that opened
    // the item.
    if (followed.by_keyboard) body.current?.focus({ preventScroll: true });
    followed.by_keyboard = false;
  }, [label]);
  return (
    <section class="detail" aria-label={label} data-back={back} ref={body} tabIndex={-1}>
      <header class="detail-head">
        <a class="bare back" href={back}>
          {/* The button leads back when the item takes the place of the list, and closes the item when it is beside the list. */}
          <Icon name="back" />
          <Icon name="close" />
          <span class="unseen">{back_label}</span>
        </a>
        <h2 class="detail-title">{title}</h2>
        <div class="page-actions">{actions}</div>
      </header>
      {children}
    </section>
  );
}

interface FilterProps {
  label: string;
  name: string;
  value: string;
  /** Whether the key `/` moves the focus to this field. */
  is_first?: boolean;
}

/** A search field. Its text filters the list, and is part of the address of the page. */
export function Filter({ label, name, value, is_first = false }: FilterProps): JSX.Element {
  return (
    <label class="filter">
      <span class="unseen">{label}</span>
      <input
        type="search"
        class="input"
        placeholder={label}
        value={value}
        data-filter={is_first ? 'first' : undefined}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => filterBy({ [name]: event.currentTarget.value })}
      />
    </label>
  );
}

/** Names and values in two columns. */
export function Facts({ facts }: { facts: readonly (readonly [string, ComponentChildren])[] }): JSX.Element {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
