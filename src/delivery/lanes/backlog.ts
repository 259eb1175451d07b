import { Fifo } from '../fifo.ts';
import type { LaneDelivery } from './lane_delivery.ts';

/** The part of a lane that is on disk only. The object exists only while there is such a part. */
export class Backlog {
  /** The deliveries in memory that follow the backlog without a gap. */
  tail: Fifo<LaneDelivery> | null = null;
  /** The seqs of the first and the last of the tail. */
  tail_from = Infinity;
  tail_to = 0;
  /** True after the lane was too long or memory was full. Then the backlog gets no tail until all of it is read. */
  is_closed = false;
  /**
   * How many deliveries of the backlog would be in memory if the lane did not have to be read first. Backpressure
   * counts these deliveries.
   */
  unread_estimate = 0;
  /**
   * True when results of attempts must be written before the backlog is read. Otherwise the read would return
   * deliveries without their latest results.
   */
  is_unsettled = false;
  /**
   * Rises when the backlog grows or a tail begins. A page that was requested before such a change may not be the last
   * page, even if it is short.
   */
  changes = 0;

  push(delivery: LaneDelivery): void {
    const tail = (this.tail ??= new Fifo());
    if (tail.length === 0) {
      this.tail_from = delivery.seq;
      this.changes++;
    }
    tail.push(delivery);
    this.tail_to = delivery.seq;
  }

  /**
   * Drops the tail.
   *
   * @returns its deliveries: they are on disk only from now on
   */
  dropTail(): LaneDelivery[] {
    this.tail_from = Infinity;
    return this.tail === null ? [] : this.tail.truncate(0);
  }
}
