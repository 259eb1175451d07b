import { IdCodec, type IdPrefix, makeTag, NumberSource } from '../../src/domain/id.ts';

/** Makes ids as a data file does, for contenders that have no data file. */
export class IdSource {
  readonly #numbers = new NumberSource(Date.now, 0);
  readonly #codec = new IdCodec(makeTag(Math.random));

  next(prefix: IdPrefix): string {
    return this.#codec.encode(prefix, this.#numbers.take(1));
  }
}
