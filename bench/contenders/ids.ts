import { IdCodec, type IdPrefix, makeTag, NumberSource } from '../../src/domain/id.ts';

/** Ids as a data file makes them, for the parts that have no data file. */
export class IdSource {
  readonly #numbers = new NumberSource(Date.now, 0);
  readonly #codec = new IdCodec(makeTag(Math.random));

  next(prefix: IdPrefix): string {
    return this.#codec.encode(prefix, this.#numbers.take(1));
  }
}
