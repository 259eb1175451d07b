import type { Clock } from '../delivery/clock.ts';
import type { Visibility } from '../domain/access.ts';
import type { About, FeedEventName } from '../domain/feed_event.ts';
import { TIMEOUT_S_MAX } from '../domain/runtimes/runtimes.ts';
import type { FeedMemory, PublishedEvent } from './memory.ts';
import type { Store } from '../store/store.ts';

/** The rights and the filters of a listener. */
export interface FeedViewer {
  /** The rows that the listener may see; null: everything. */
  visibility: Visibility | null;
  /** When given, only events of this instance. */
  instance_id: string | undefined;
  /** When given, only events of this meeting. With an instance_id too, an event must be of both. */
  meeting_id: string | undefined;
}

const PAGE = 1_000;

/** How long an instance counts as young: longer than any attempt takes. */
const YOUNG_MS = (TIMEOUT_S_MAX + 60) * 1000;

/**
 * Decides which events a listener sees. For a key with limits, the view holds the ids of the visible instances: the
 * instances that the key owns, and the instances in its meetings. The view reads the ids once, and updates them from
 * the events of instances.
 */
export class FeedView {
  readonly viewer: FeedViewer;
  readonly #store: Pick<Store, 'instances'>;
  readonly #clock: Pick<Clock, 'wall'>;
  readonly #onError: (error: unknown) => void;
  readonly #meetings: ReadonlySet<string>;
  /** The ids with the time of their registration, because an id may have had another owner before. */
  #owned = new Map<string, number>();
  #in_meetings = new Map<string, number>();
  /** Instances to read again, because they joined or left one of the meetings, or were removed. */
  readonly #to_read = new Set<string>();
  #is_reading = false;
  #is_stale = false;
  #is_refreshing = false;
  /**
   * For ids that were read from the store: events up to this number belong to an earlier instance with the same id.
   */
  readonly #removals = new Map<string, number>();

  constructor(
    viewer: FeedViewer,
    {
      store,
      clock,
      onError,
    }: { store: Pick<Store, 'instances'>; clock: Pick<Clock, 'wall'>; onError: (error: unknown) => void },
  ) {
    this.viewer = viewer;
    this.#store = store;
    this.#clock = clock;
    this.#onError = onError;
    this.#meetings = new Set(viewer.visibility?.meeting_ids);
  }

  /** Whether the listener sees everything. */
  get isWhole(): boolean {
    const { visibility, instance_id, meeting_id } = this.viewer;
    return visibility === null && instance_id === undefined && meeting_id === undefined;
  }

  /** Reads which instances are visible. Call it after the listener has its position, so that no change is missed. */
  async load(memory: Pick<FeedMemory, 'removalOf' | 'last'>): Promise<void> {
    const { visibility } = this.viewer;
    if (visibility === null) return;
    const { last } = memory;
    const { owner_scope, meeting_ids } = visibility;
    const owned = owner_scope === null ? [] : await this.#read({ owner_scope, meeting_ids: [] });
    const in_meetings = meeting_ids.length === 0 ? [] : await this.#read({ owner_scope: null, meeting_ids });
    this.#owned = new Map(owned);
    this.#in_meetings = new Map(in_meetings);
    for (const instance_id of [...this.#owned.keys(), ...this.#in_meetings.keys()]) {
      const removal = memory.removalOf(instance_id);
      if (removal > 0) this.#removals.set(instance_id, removal);
      // The instance was removed while the rows were read. So the row may be of the removed instance, or of the next
      // one with this id.
      if (removal > last && this.#in_meetings.delete(instance_id)) this.#to_read.add(instance_id);
    }
    this.#readAgain();
  }

  async #read(visibility: Visibility): Promise<[instance_id: string, created_at: number][]> {
    const read: [string, number][] = [];
    for (;;) {
      const page = await this.#store.instances.listIds(read.at(-1)?.[0] ?? null, PAGE, visibility);
      for (const { instance_id, created_at } of page) read.push([instance_id, created_at]);
      if (page.length < PAGE) return read;
    }
  }

  /**
   * Whether a gap was seen: one of the missing events may have given an instance to another owner. Then no event may be
   * shown before `refresh` returns true.
   */
  get isStale(): boolean {
    return this.#is_stale;
  }

  /**
   * Loads the view of a listener that has seen a gap. Returns false when a refresh is in progress, or when this one
   * fails.
   */
  async refresh(memory: Pick<FeedMemory, 'removalOf' | 'last'>): Promise<boolean> {
    if (this.#is_refreshing) return false;
    this.#is_refreshing = true;
    try {
      await this.load(memory);
      this.#is_stale = false;
      return true;
    } catch (error) {
      this.#onError(error);
      return false;
    } finally {
      this.#is_refreshing = false;
    }
  }

  sees({ name, about, number }: Pick<PublishedEvent, 'name' | 'about' | 'number'>): boolean {
    const { visibility, instance_id, meeting_id } = this.viewer;
    if (about.kind === 'everybody') {
      this.#is_stale = visibility !== null;
      return true;
    }
    if (about.kind === 'of_an_instance') {
      if (instance_id === undefined || (meeting_id ?? about.meeting_id) !== about.meeting_id) return false;
      return visibility === null || (about.meeting_id !== null && this.#meetings.has(about.meeting_id));
    }
    // Comes before the filters, because the view also learns from events that the filters leave out.
    const is_visible = visibility === null || this.#isVisible(name, about, number, visibility);
    if (name === 'instance.removed') this.#forgetMembers(about.instance_ids, number);
    if (instance_id !== undefined && !about.instance_ids.includes(instance_id)) return false;
    if (meeting_id !== undefined && about.meeting_id !== meeting_id) return false;
    return is_visible;
  }

  #isVisible(name: FeedEventName, about: About, number: number, visibility: Visibility): boolean {
    const { kind, meeting_id, instance_ids } = about;
    if (meeting_id !== null && this.#meetings.has(meeting_id)) {
      if (kind === 'instance') this.#learnMembers(instance_ids, name === 'instance.left');
      return true;
    }
    if (kind === 'message') return false;
    if (kind === 'instance' && about.owner_key_id !== undefined && this.#learnOwner(about, visibility)) return true;
    // When an instance is in a meeting of the listener, the events of the instance itself are visible. Its events in
    // other meetings are not.
    const of_itself = kind === 'instance' && meeting_id === null;
    return instance_ids.some((id) => {
      const created_at = this.#owned.get(id) ?? (of_itself ? this.#in_meetings.get(id) : undefined);
      if (created_at === undefined || number <= (this.#removals.get(id) ?? 0)) return false;
      return about.since === undefined || about.since >= created_at || !this.#isYoung(created_at);
    });
  }

  /**
   * Whether the instance is so young that an attempt of a removed instance with the same id may still end. Only then
   * does `#isVisible` compare the time of an event with the time of the registration: wall clocks differ between nodes,
   * and people set them.
   */
  #isYoung(created_at: number): boolean {
    const age_ms = this.#clock.wall() - created_at;
    return age_ms >= 0 && age_ms < YOUNG_MS;
  }

  /** @returns whether the listener has lost an instance to another owner: this event is the last one that it sees */
  #learnOwner({ instance_ids, owner_key_id, created_at = 0 }: About, { owner_scope }: Visibility): boolean {
    if (owner_scope === null) return false;
    let has_lost = false;
    for (const instance_id of instance_ids) {
      const is_ours = owner_key_id === owner_scope.key_id && (owner_scope.instance_id ?? instance_id) === instance_id;
      if (is_ours) this.#owned.set(instance_id, created_at);
      else {
        // When the times of registration differ, this is another instance: the instance of the listener was deleted.
        has_lost ||= this.#owned.get(instance_id) === created_at;
        this.#owned.delete(instance_id);
      }
    }
    return has_lost;
  }

  /**
   * Call it when instances joined or left one of the meetings. Only the store knows whether an instance is still in
   * another of these meetings.
   */
  #learnMembers(instance_ids: readonly string[], have_left: boolean): void {
    for (const instance_id of instance_ids) {
      if (!have_left && !this.#in_meetings.has(instance_id)) this.#in_meetings.set(instance_id, 0);
      if (have_left && this.#meetings.size === 1) this.#in_meetings.delete(instance_id);
      this.#to_read.add(instance_id);
    }
    this.#readAgain();
  }

  /**
   * Call it when instances were removed: the next instance with the same id may be of somebody else. The view reads
   * this next instance, because it may have joined already: events of several nodes come in any order.
   */
  #forgetMembers(instance_ids: readonly string[], number: number): void {
    for (const instance_id of instance_ids) {
      // `load` has already read the next instance.
      if (number <= (this.#removals.get(instance_id) ?? 0)) continue;
      if (this.#in_meetings.delete(instance_id)) this.#to_read.add(instance_id);
    }
    this.#readAgain();
  }

  #readAgain(): void {
    if (this.#is_reading || this.#to_read.size === 0) return;
    this.#is_reading = true;
    void this.#readMembers().finally(() => {
      this.#is_reading = false;
    });
  }

  /** Reads one instance at a time: thousands of instances may join in a second, and many listeners learn of each. */
  async #readMembers(): Promise<void> {
    const visibility = { owner_scope: null, meeting_ids: [...this.#meetings] };
    // Also reads the ids that are added meanwhile.
    for (const instance_id of this.#to_read) {
      this.#to_read.delete(instance_id);
      try {
        const row = await this.#store.instances.find(instance_id, visibility);
        // The instance changed again meanwhile, and the row may be from before that change.
        if (this.#to_read.has(instance_id)) continue;
        if (row === null) this.#in_meetings.delete(instance_id);
        else this.#in_meetings.set(instance_id, row.created_at);
      } catch (error) {
        this.#onError(error);
        // The instance may have left: nothing is shown until everything is read again.
        this.#is_stale = true;
      }
    }
  }
}
