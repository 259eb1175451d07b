import type { Sight } from '../domain/access.ts';
import type { About } from '../domain/feed_event.ts';
import type { Store } from '../store/store.ts';

/** Who listens, and to what. */
export interface FeedViewer {
  /** What he may look at; null: everything. */
  sight: Sight | null;
  /** Only what is about this instance, and this meeting. */
  instance_id: string | undefined;
  meeting_id: string | undefined;
  /** The digest of the session that he has signed in with. */
  session: string | null;
}

const PAGE = 500;

/**
 * What a listener sees of what is told. With a limited sight it knows by name the instances that are in it: those that the
 * key owns, and those in its meetings. They are read once, and kept true by what is told of instances.
 */
export class FeedView {
  readonly viewer: FeedViewer;
  readonly #store: Pick<Store, 'instances'>;
  readonly #onError: (error: unknown) => void;
  readonly #meetings: ReadonlySet<string>;
  readonly #owned = new Set<string>();
  readonly #in_meetings = new Set<string>();

  constructor(viewer: FeedViewer, store: Pick<Store, 'instances'>, onError: (error: unknown) => void) {
    this.viewer = viewer;
    this.#store = store;
    this.#onError = onError;
    this.#meetings = new Set(viewer.sight?.meeting_ids);
  }

  /** Whether it sees everything. */
  get isWhole(): boolean {
    const { sight, instance_id, meeting_id } = this.viewer;
    return sight === null && instance_id === undefined && meeting_id === undefined;
  }

  /** Reads what is in sight; to be called after the listener has its place, so that no change is missed. */
  async load(): Promise<void> {
    const { sight } = this.viewer;
    if (sight === null) return;
    if (sight.owned !== null) await this.#loadInto(this.#owned, { owned: sight.owned, meeting_ids: [] });
    if (sight.meeting_ids.length > 0) {
      await this.#loadInto(this.#in_meetings, { owned: null, meeting_ids: sight.meeting_ids });
    }
  }

  async #loadInto(set: Set<string>, sight: Sight): Promise<void> {
    let cursor: string | undefined;
    do {
      const page = await this.#store.instances.list({ limit: PAGE, cursor }, sight);
      for (const { instance_id } of page.data) set.add(instance_id);
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
  }

  sees(about: About): boolean {
    const { sight, instance_id, meeting_id } = this.viewer;
    if (about.kind === 'everybody') return true;
    // Asked before the filters: it learns from what is told.
    const in_sight = sight === null || this.#isInSight(about, sight);
    if (instance_id !== undefined && !about.instance_ids.includes(instance_id)) return false;
    if (meeting_id !== undefined && about.meeting_id !== meeting_id) return false;
    return in_sight;
  }

  #isInSight(about: About, sight: Sight): boolean {
    const { kind, meeting_id, instance_ids } = about;
    if (meeting_id !== null && this.#meetings.has(meeting_id)) {
      if (kind === 'instance') this.#learnMember(instance_ids);
      return true;
    }
    if (kind === 'message') return false;
    if (kind === 'instance' && about.owner_key_id !== undefined) this.#learnOwner(about, sight);
    // Of an instance in its meetings it sees how it does, and not in which others it is.
    const of_itself = kind === 'instance' && meeting_id === null;
    return instance_ids.some((id) => this.#owned.has(id) || (of_itself && this.#in_meetings.has(id)));
  }

  #learnOwner({ instance_ids, owner_key_id }: About, { owned }: Sight): void {
    if (owned === null) return;
    for (const instance_id of instance_ids) {
      const is_ours = owner_key_id === owned.key_id && (owned.instance_id ?? instance_id) === instance_id;
      if (is_ours) this.#owned.add(instance_id);
      else this.#owned.delete(instance_id);
    }
  }

  /** It joined or left one of the meetings: whether it is still in another of them only the store knows. */
  #learnMember(instance_ids: readonly string[]): void {
    const meeting_ids = [...this.#meetings];
    for (const instance_id of instance_ids) {
      this.#in_meetings.add(instance_id);
      this.#store.instances.get(instance_id, { owned: null, meeting_ids }).then((row) => {
        if (row === null) this.#in_meetings.delete(instance_id);
      }, this.#onError);
    }
  }
}
