/**
 * The title and the icon of the browser's tab. They show that something is wrong, even to people who look at another
 * tab.
 */
import { useEffect } from 'preact/hooks';
import { lost_since } from '../lost.ts';
import { Observable, useObservable } from '../observable.ts';
import { isAway, type Query, useQuery } from '../queries.ts';
import { client, may, session } from '../service.ts';

const title = new Observable('');

export function useTitle(text: string): void {
  useEffect(() => void (title.value = text), [text]);
}

/** The title of a tab: the name of its view, the name of the environment if it has one, and the service. */
export function titleOf(text: string, environment: string | null): string {
  return [text, environment, 'Convoke'].filter((part) => part !== null).join(' · ');
}

/**
 * The tab also asks without an event, this often. A hidden tab may have no connection of the feed, and the service may
 * count again only a while after an event.
 */
const LOOK_EVERY_MS = 10_000;
/** The events after which another number of instances may be down. */
const CHANGES = ['instance.up', 'instance.down', 'instance.changed', 'instance.removed'];

/** The title. While something is wrong, it begins with a mark, because a tab shows only the beginning of its title. */
export function TabTitle(): null {
  const text = useObservable(title);
  const environment = useObservable(session)?.environment ?? null;
  const is_lost = useObservable(lost_since) !== null;
  const { value: down, problem } = useDown();
  const is_away = document.hidden ? problem !== null && isAway(problem) : is_lost;
  const trouble = is_away ? 'not connected' : (down ?? 0) === 0 ? null : `${down} down`;
  useEffect(() => {
    document.title = `${trouble === null ? '' : `(${trouble}) `}${titleOf(text, environment)}`;
  }, [trouble, text, environment]);
  useEffect(() => void showIcon(trouble !== null), [trouble !== null]);
  // After a sign-out the icon is plain again.
  useEffect(() => () => void showIcon(false), []);
  return null;
}

/** How many instances are down, of those that are switched on. */
function useDown(): Query<number> {
  const down = useQuery(
    may('read') || may('instance') ? 'instances down' : null,
    async () => (await client.getCounts()).instances.down,
    ({ name }) => CHANGES.includes(name),
    { is_seen_hidden: true },
  );
  useEffect(() => {
    const timer = setInterval(down.again, LOOK_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return down;
}

const ICON_PX = 64;
const link = document.querySelector('link[rel=icon]') as HTMLLinkElement;
const plain = link.href;
/** The icon loads at once, because the service may be away when the page needs the icon. */
const image = new Image();
image.src = plain;
const loaded = image.decode().catch(() => {});

async function showIcon(has_mark: boolean): Promise<void> {
  await loaded;
  link.href = has_mark ? markedIcon() : plain;
}

/** The icon, and in its corner the cross in a square that means "bad" everywhere. */
function markedIcon(): string {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = ICON_PX;
  const draw = canvas.getContext('2d') as CanvasRenderingContext2D;
  if (image.naturalWidth > 0) draw.drawImage(image, 0, 0, ICON_PX, ICON_PX);
  draw.fillStyle = '#b3332a';
  draw.fillRect(28, 28, 36, 36);
  draw.strokeStyle = '#fff';
  draw.lineWidth = 6;
  draw.lineCap = 'round';
  draw.stroke(new Path2D('M38 38 54 54M54 38 38 54'));
  return canvas.toDataURL();
}
