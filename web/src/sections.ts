/** The views that the navigation names, and who sees each. */
import type { IconName } from './parts/icons.tsx';
import { is_portal } from './portal.ts';
import { may, session } from './service.ts';

export interface Section {
  path: string;
  name: string;
  icon: IconName;
  /** The key that opens the section, pressed after `g`. */
  key: string;
  is_shown?: () => boolean;
}

const isAdmin = (): boolean => may('admin');
/** A single node has no page of nodes: the page would show only that node. */
const isShared = (): boolean => !is_portal && may('read') && session.value?.features.cluster === true;
/** Not in the portal: a link of the portal shows only instances and their deliveries. */
const isOwn = (): boolean => !is_portal;
/** Needs the scope `read`: without it a key sees only its own instances and their deliveries. */
const isReader = (): boolean => !is_portal && may('read');

export const SECTIONS: readonly Section[] = [
  { path: '/now', name: 'Now', icon: 'now', key: 'n', is_shown: isOwn },
  { path: '/meetings', name: 'Meetings', icon: 'meetings', key: 'm', is_shown: isReader },
  { path: '/instances', name: 'Instances', icon: 'instances', key: 'i' },
  { path: '/deliveries', name: 'Deliveries', icon: 'deliveries', key: 'd' },
  { path: '/keys', name: 'Keys', icon: 'keys', key: 'k', is_shown: isAdmin },
  { path: '/audit', name: 'Audit', icon: 'audit', key: 'a', is_shown: isAdmin },
  { path: '/nodes', name: 'Nodes', icon: 'nodes', key: 'o', is_shown: isShared },
  { path: '/start', name: 'Guide', icon: 'start', key: 's', is_shown: isOwn },
];
/** The address to which the name of the service leads. */
export const HOME = is_portal ? '/instances' : '/now';
