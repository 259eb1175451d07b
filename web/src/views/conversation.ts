/** A stretch of the messages of a meeting and their deliveries, kept up to date while the page shows it. */
import { ConvokeError, type Delivery, type RawMessage } from '@convoke/sdk';
import { type FeedEvent } from '../feed.ts';
import { Observable } from '../observable.ts';
import { errorOf } from '../queries.ts';
import { client } from '../service.ts';
import { readable } from './readable.ts';

/** How many messages a request asks for. */
const PAGE = 50;
/**
 * When a response does not arrive whole in time, the next request asks for a fifth of the messages, because they may be
 * large and the line slow. A whole page within QUICK_MS shows that five times as many arrive in time too.
 */
const FEWER = 5;
const PAGE_MIN = 2;
const QUICK_MS = 1500;
/**
 * The most messages that are kept, and drawn. With more, each message that enters at one end removes a message at the
 * other end. The kept messages must fill the highest screen several times.
 */
const KEPT_MAX = 150;
const DELIVERIES_PAGE = 500;
/**
 * The most pages of deliveries that are read of a range. In a meeting with many recipients these pages may not reach
 * every message. The earlier messages then have no marks, but a link to their deliveries.
 */
const DELIVERY_PAGES_MAX = 4;
/** The most ranges that are read at a time: each range has as many changed messages as its pages reach. */
const RANGES_MAX = 4;

/** A message, with the parts that people read. */
export interface Line extends Omit<RawMessage, 'message'> {
  /** The message as it was sent. */
  json: string;
  /** The sender, as the message itself claims. */
  from: string | null;
  /** Null when the message has no text in the usual fields. */
  text: string | null;
}

export interface Stretch {
  /** In the order of seq; null until they were read. */
  lines: readonly Line[] | null;
  /** By message_id. A message without an entry is one whose deliveries were not read. */
  deliveries: ReadonlyMap<string, readonly Delivery[]>;
  has_earlier: boolean;
  /** Whether the stretch ends with the newest message that the meeting had when it was read. */
  is_to_end: boolean;
  /** The seq of the newest known message of the meeting. */
  newest_seq: number;
  problem: ConvokeError | null;
}

/** Deliveries by message_id; null where they changed and were not read, because earlier pages had too many others. */
type Found = ReadonlyMap<string, Delivery[] | null>;

const NOTHING: Stretch = {
  lines: null,
  deliveries: new Map(),
  has_earlier: false,
  is_to_end: true,
  newest_seq: 0,
  problem: null,
};

/** The seqs of the messages whose deliveries changed; null: those of all messages. */
type Changed = Set<number> | null;

export class Conversation {
  readonly stretch = new Observable<Stretch>(NOTHING);
  /**
   * Whether the reader is at the end of the meeting. New messages are shown only then, so that nothing moves while
   * somebody reads, and the stretch stays bounded.
   */
  is_followed = true;
  readonly #meeting_id: string;
  #changed: Changed = new Set();
  /** The instances that changed. No event says for which deliveries the reason to wait changed with them. */
  readonly #changed_instances = new Set<string>();
  #newest_seq = 0;
  /** The most messages that a request asks for. */
  #page = PAGE;
  /** The message that the reader asked for last; null: the latest. A refresh opens it when nothing could be read before. */
  #wanted: number | null = null;
  /** The last step; the next step begins when this step has ended. */
  #step: Promise<void> = Promise.resolve();
  #is_reading = false;
  #is_growing = false;
  #is_refreshing = false;
  #is_stale = false;
  #is_gone = false;

  constructor(meeting_id: string) {
    this.#meeting_id = meeting_id;
  }

  /** Stops showing anything. */
  end(): void {
    this.#is_gone = true;
  }

  /** Remembers the change that an event reports, for the next refresh. */
  note({ name, meeting_id, instance_id, delivery_id, sent }: FeedEvent): void {
    if (name === 'gap') return this.#isStale(null, Infinity);
    if (name.startsWith('instance.')) this.#waitsAreStale(instance_id);
    if (meeting_id !== this.#meeting_id && meeting_id !== null) return;
    if (sent?.name === 'message.accepted') this.#isStale(sent.data.seq, sent.data.seq);
    else if (sent?.name === 'delivery.attempted') {
      this.#isStale(sent.data.seq, 0);
      // After a failure an instance that is down backs off again.
      if (sent.data.state !== 'delivered') this.#waitsAreStale(sent.data.instance_id);
    } else if (name === 'delivery.settled' || name === 'delivery.queued') {
      const [known] = this.#which((delivery) => delivery.delivery_id === delivery_id);
      this.#isStale(known?.seq ?? null, 0);
    } else if (name === 'meeting.changed') this.#isStale(null, 0);
  }

  /**
   * Whether the stretch may have a pending delivery to the instance. When the instance changes, the reason for which
   * that delivery waits may change too, and no event says so.
   */
  mayWaitFor(instance_id: string | null | undefined): boolean {
    // The deliveries that are read now may be from before the change.
    return this.#is_reading || this.#pendingFor(instance_id).length > 0;
  }

  #waitsAreStale(instance_id: string | null | undefined): void {
    if (instance_id && this.mayWaitFor(instance_id)) this.#changed_instances.add(instance_id);
  }

  #pendingFor(instance_id: string | null | undefined): Delivery[] {
    return this.#which((delivery) => delivery.instance_id === instance_id && delivery.state === 'pending');
  }

  #which(is: (delivery: Delivery) => boolean): Delivery[] {
    return [...this.stretch.value.deliveries.values()].flatMap((deliveries) => deliveries.filter(is));
  }

  /**
   * @param changed_seq the message whose deliveries changed; null: they may have changed for all messages
   * @param newest_seq the seq of a message that was sent; Infinity when there may be new messages; 0 when there is no
   * new message
   */
  #isStale(changed_seq: number | null, newest_seq: number): void {
    if (changed_seq === null) this.#changed = null;
    else this.#changed?.add(changed_seq);
    if (newest_seq === 0) return;
    if (newest_seq < Infinity) this.#newest_seq = Math.max(this.#newest_seq, newest_seq);
    if (!this.is_followed) this.#show({ is_to_end: false });
  }

  /**
   * Shows the message with this seq and the messages around it, or the latest messages; false when there is no such
   * message.
   */
  async open(seq: number | null): Promise<boolean> {
    this.#wanted = seq;
    const isThere = (): boolean => this.stretch.value.lines?.some((line) => line.seq === seq) === true;
    if (seq !== null && isThere()) return true;
    if (seq === null && this.stretch.value.is_to_end && this.stretch.value.lines !== null) {
      this.is_followed = true;
      await this.refresh();
      return true;
    }
    await this.#inTurn(() => this.#open(seq));
    return seq === null || isThere();
  }

  /**
   * Reads new messages, and new states of the deliveries on the screen. All calls during a refresh together cause one
   * more refresh.
   */
  async refresh(): Promise<void> {
    this.#is_stale = true;
    if (this.#is_refreshing) return;
    this.#is_refreshing = true;
    while (this.#is_stale && !this.#is_gone) {
      this.#is_stale = false;
      await this.#inTurn(() => this.#refresh());
    }
    this.#is_refreshing = false;
  }

  earlier(): void {
    if (this.stretch.value.has_earlier) this.#grow(() => this.#earlier());
  }

  later(): void {
    if (!this.stretch.value.is_to_end) this.#grow(() => this.#later());
  }

  #grow(step: () => Promise<void>): void {
    if (this.#is_growing) return;
    this.#is_growing = true;
    void this.#inTurn(step).then(() => (this.#is_growing = false));
  }

  /** Runs one step after the other, because every step reads and then replaces the stretch. */
  #inTurn(step: () => Promise<void>): Promise<void> {
    const run = async (): Promise<void> => {
      if (this.#is_gone) return;
      this.#is_reading = true;
      try {
        await step();
        this.#show({ problem: null });
      } catch (error) {
        this.#changed = null;
        this.#show({ problem: errorOf(error) });
      } finally {
        this.#is_reading = false;
      }
    };
    return (this.#step = this.#step.then(run));
  }

  async #open(seq: number | null): Promise<void> {
    if (seq === null) {
      const { lines, has_more } = await this.#read({ limit: PAGE });
      await this.#replace({ lines, has_earlier: has_more, is_to_end: true });
      return;
    }
    const limit = PAGE / 2;
    const before = await this.#read({ before_seq: seq + 1, limit });
    const after = await this.#read({ after_seq: seq, limit });
    const lines = [...before.lines, ...after.lines];
    await this.#replace({ lines, has_earlier: before.has_more, is_to_end: !after.has_more });
  }

  async #replace(read: Pick<Stretch, 'has_earlier' | 'is_to_end'> & { lines: Line[] }): Promise<void> {
    this.#show(read);
    this.#changed = new Set();
    await this.#readDeliveries(null);
  }

  async #refresh(): Promise<void> {
    const { lines, is_to_end } = this.stretch.value;
    const last = lines?.at(-1);
    if (lines === null || last === undefined) return this.#open(this.#wanted);
    const changed = this.#takeChanged();
    if (is_to_end && this.is_followed) {
      const { lines: more, has_more } = await this.#read({ after_seq: last.seq, limit: PAGE });
      // So many messages arrived together that the reader could not follow anyway.
      if (has_more) return this.#open(null);
      for (const { seq } of more) changed?.add(seq);
      this.#append(more, { is_to_end: true });
    } else this.#show({});
    await this.#readDeliveries(changed);
  }

  #takeChanged(): Changed {
    const changed = this.#changed;
    for (const instance_id of this.#changed_instances)
      for (const { seq } of this.#pendingFor(instance_id)) changed?.add(seq);
    this.#changed_instances.clear();
    this.#changed = new Set();
    return changed;
  }

  async #earlier(): Promise<void> {
    // Looks for the first message only now: the step before this one may have replaced the stretch.
    const first = this.stretch.value.lines?.[0];
    if (first === undefined) return;
    const { lines: more, has_more } = await this.#read({ before_seq: first.seq, limit: PAGE });
    const { lines, is_to_end } = this.stretch.value;
    const all = [...more, ...(lines ?? [])];
    const deliveries = await this.#deliveriesOf(more, null);
    this.#show(
      { lines: all.slice(0, KEPT_MAX), has_earlier: has_more, is_to_end: is_to_end && all.length <= KEPT_MAX },
      deliveries,
    );
  }

  async #later(): Promise<void> {
    const last = this.stretch.value.lines?.at(-1);
    if (last === undefined) return;
    const { lines: more, has_more } = await this.#read({ after_seq: last.seq, limit: PAGE });
    const deliveries = await this.#deliveriesOf(more, null);
    this.#append(more, { is_to_end: !has_more }, deliveries);
  }

  #append(more: Line[], end: Pick<Stretch, 'is_to_end'>, deliveries?: Found): void {
    const { lines, has_earlier } = this.stretch.value;
    if (more.length === 0) return this.#show(end);
    const all = [...(lines ?? []), ...more];
    this.#show({ ...end, lines: all.slice(-KEPT_MAX), has_earlier: has_earlier || all.length > KEPT_MAX }, deliveries);
  }

  async #readDeliveries(changed: Changed): Promise<void> {
    const found = await this.#deliveriesOf(this.stretch.value.lines ?? [], changed);
    if (found.size > 0) this.#show({}, found);
  }

  #show(changes: Partial<Stretch>, more: Found = new Map()): void {
    if (this.#is_gone) return;
    const before = this.stretch.value;
    const after = { ...before, ...changes };
    const { lines } = after;
    this.#newest_seq = Math.max(this.#newest_seq, lines?.at(-1)?.seq ?? 0);
    after.newest_seq = this.#newest_seq;
    if (more.size > 0 || lines !== before.lines) {
      const deliveries = new Map<string, readonly Delivery[]>();
      for (const { message_id } of lines ?? []) {
        const found = more.has(message_id) ? more.get(message_id) : before.deliveries.get(message_id);
        if (found) deliveries.set(message_id, found);
      }
      after.deliveries = deliveries;
    }
    const names = Object.keys(after) as (keyof Stretch)[];
    if (names.some((name) => after[name] !== before[name])) this.stretch.value = after;
  }

  async #read(query: ReadQuery): Promise<{ lines: Line[]; has_more: boolean }> {
    const limit = Math.min(query.limit, this.#page);
    const asked_at = performance.now();
    try {
      const { data, has_more } = await client.listRawMessages(this.#meeting_id, { ...query, limit });
      const is_quick = data.length === this.#page && performance.now() - asked_at < QUICK_MS;
      if (is_quick) this.#page = Math.min(PAGE, this.#page * FEWER);
      return { lines: data.map(lineOf), has_more };
    } catch (error) {
      if (error instanceof ConvokeError && error.code === 'timeout' && limit > PAGE_MIN && !this.#is_gone) {
        this.#page = Math.max(PAGE_MIN, Math.floor(limit / FEWER));
        return this.#read(query);
      }
      // The page was opened before the first message of the meeting.
      if (error instanceof ConvokeError && error.code === 'meeting_does_not_exist')
        return { lines: [], has_more: false };
      throw error;
    }
  }

  /** Reads the deliveries of the lines whose deliveries changed. */
  async #deliveriesOf(lines: readonly Line[], changed: Changed): Promise<Found> {
    const found = new Map<string, Delivery[] | null>();
    const ranges = rangesOf(lines, changed);
    for (const { message_id } of ranges.slice(0, -RANGES_MAX).flat()) found.set(message_id, null);
    for (const range of ranges.slice(-RANGES_MAX)) await this.#readInto(found, range);
    return found;
  }

  /** Reads the deliveries of some lines, and passes over those of the lines between them. */
  async #readInto(found: Map<string, Delivery[] | null>, wanted: readonly [Line, ...Line[]]): Promise<void> {
    for (const { message_id } of wanted) found.set(message_id, []);
    const meeting_id = this.#meeting_id;
    const [after_seq, before_seq] = [wanted[0].seq - 1, wanted.at(-1)!.seq + 1];
    const range = { meeting_id, after_seq, before_seq, limit: DELIVERIES_PAGE };
    let cursor: string | undefined;
    let reached_seq = 0;
    for (let pages = 0; pages < DELIVERY_PAGES_MAX; pages++) {
      const page: Awaited<ReturnType<typeof client.listDeliveries>> = await client.listDeliveries({ ...range, cursor });
      for (const delivery of page.data) found.get(delivery.message_id)?.push(delivery);
      reached_seq = page.next_cursor === null ? 0 : (page.data.at(-1)?.seq ?? 0);
      if (page.next_cursor === null) break;
      cursor = page.next_cursor;
    }
    for (const { message_id, seq } of wanted) {
      // Deliveries of the message at which reading stopped may be missing, so it counts as not read.
      if (seq <= reached_seq) found.set(message_id, null);
      else found.get(message_id)?.sort(byInstance);
    }
  }
}

/** Divides the changed lines into ranges. Deliveries of the unchanged lines in a range are read too, so they count. */
function rangesOf(lines: readonly Line[], changed: Changed): [Line, ...Line[]][] {
  const [first, ...others] = lines;
  if (first === undefined) return [];
  // One range for all lines: its pages begin with the newest lines, and these matter most.
  if (changed === null) return [[first, ...others]];
  const ranges: [Line, ...Line[]][] = [];
  let deliveries = 0;
  for (const line of lines) {
    deliveries += line.deliveries_queued;
    if (!changed.has(line.seq)) continue;
    if (deliveries <= DELIVERIES_PAGE * DELIVERY_PAGES_MAX && ranges.length > 0) ranges.at(-1)!.push(line);
    else {
      ranges.push([line]);
      deliveries = line.deliveries_queued;
    }
  }
  return ranges;
}

interface ReadQuery {
  after_seq?: number;
  before_seq?: number;
  limit: number;
}

function lineOf({ message, ...record }: RawMessage): Line {
  return { ...record, json: message.text, ...readable(JSON.parse(message.text) as Record<string, unknown>) };
}

function byInstance(a: Delivery, b: Delivery): number {
  return a.instance_id < b.instance_id ? -1 : 1;
}
