/**
 * The most pushes that one machine may have in hand, and the most pushes and bytes of all machines together. A push in
 * hand stays in the memory of its node.
 */
const OF_MACHINE_MAX = 256;
const COUNT_MAX = 40_000;
const BYTES_MAX = 64 << 20;
/**
 * The share of the free room that the machines of one owner may have together. So an owner leaves as much room to all
 * other owners as it takes itself, however many machines it has.
 */
const SHARE_OF_OWNER = 1 / 2;
/**
 * The share of the free room of an owner that one of its machines may take. So machines that take much and report
 * nothing leave room for the other machines of their owner: after seven such machines, more than a third is still free.
 */
const SHARE_OF_MACHINE = 1 / 8;
/**
 * How many waiting machines may try again when a result arrives. A result makes room for one push, but some of these
 * machines may no longer need it.
 */
const WOKEN_MAX = 16;

/** A number of pushes, and the bytes of their bodies. */
class Amount {
  count = 0;
  bytes = 0;

  add(bytes: number): void {
    this.count++;
    this.bytes += bytes;
  }

  subtract(bytes: number): void {
    this.count--;
    this.bytes -= bytes;
  }
}

/** The machines of one owner. */
export class PullOwner {
  /** The key that owns the instances of these machines; null when no key does. */
  readonly key_id: string | null;
  readonly in_hand = new Amount();
  /** How many of its machines are known. The owner is forgotten when it has no machine left and nothing in hand. */
  machines = 0;
  /**
   * Instances of this owner that got no push because too much was in hand, in the order in which they began to wait.
   */
  readonly without_room = new Set<string>();

  constructor(key_id: string | null) {
    this.key_id = key_id;
  }
}

/** The facts about a machine that decide how much room it has. */
export interface PullHolder {
  readonly instance_id: string;
  readonly owner: PullOwner;
  readonly in_hand_count: number;
  readonly in_hand_bytes: number;
}

/** Decides how many pushes machines may have in hand, and which machine is next when there is room again. */
export class PullRoom {
  readonly #onRoom: (instance_id: string) => void;
  readonly #owners = new Map<string | null, PullOwner>();
  readonly #in_hand = new Amount();
  /** Owners with a machine that got no room. The first one is served next. */
  readonly #without_room = new Set<PullOwner>();

  /** @param onRoom called when there may be room again for an instance that had none */
  constructor(onRoom: (instance_id: string) => void) {
    this.#onRoom = onRoom;
  }

  /** How many pushes all machines have in hand. */
  get count(): number {
    return this.#in_hand.count;
  }

  /** Adds a machine. `leave` must follow. */
  enter(key_id: string | null): PullOwner {
    let owner = this.#owners.get(key_id);
    if (owner === undefined) this.#owners.set(key_id, (owner = new PullOwner(key_id)));
    owner.machines++;
    return owner;
  }

  /** Removes a machine, because it no longer pulls or has another owner. */
  leave(owner: PullOwner, instance_id: string): void {
    owner.without_room.delete(instance_id);
    if (owner.without_room.size === 0) this.#without_room.delete(owner);
    if (--owner.machines === 0 && owner.in_hand.count === 0) this.#owners.delete(owner.key_id);
  }

  /** Whether a machine may have one more push. If not, `onRoom` is called when there may be room again. */
  isFor(holder: PullHolder): boolean {
    if (this.#hasRoom(holder)) return true;
    holder.owner.without_room.add(holder.instance_id);
    this.#without_room.add(holder.owner);
    return false;
  }

  #hasRoom({ owner, in_hand_count, in_hand_bytes }: PullHolder): boolean {
    const free = (COUNT_MAX - this.#in_hand.count - owner.in_hand.count) * SHARE_OF_OWNER;
    const free_bytes = (BYTES_MAX - this.#in_hand.bytes - owner.in_hand.bytes) * SHARE_OF_OWNER;
    if (free <= 0 || free_bytes <= 0) return false;
    if (in_hand_count === 0) return true;
    return (
      in_hand_count < Math.min(OF_MACHINE_MAX, free * SHARE_OF_MACHINE) && in_hand_bytes < free_bytes * SHARE_OF_MACHINE
    );
  }

  /** A machine of an owner gets a push. */
  take(owner: PullOwner, bytes: number): void {
    owner.in_hand.add(bytes);
    this.#in_hand.add(bytes);
  }

  /** A machine of an owner no longer has a push. */
  giveBack(owner: PullOwner, bytes: number): void {
    owner.in_hand.subtract(bytes);
    this.#in_hand.subtract(bytes);
    if (owner.machines === 0 && owner.in_hand.count === 0) this.#owners.delete(owner.key_id);
    this.#wake(owner);
    // All other owners have more room too. They are served in rotation.
    const [next] = this.#without_room;
    if (next === undefined) return;
    this.#without_room.delete(next);
    this.#without_room.add(next);
    this.#wake(next);
  }

  #wake(owner: PullOwner): void {
    let count = 0;
    for (const instance_id of owner.without_room) {
      if (count++ === WOKEN_MAX) break;
      owner.without_room.delete(instance_id);
      this.#onRoom(instance_id);
    }
    if (owner.without_room.size === 0) this.#without_room.delete(owner);
  }
}
