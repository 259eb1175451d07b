/** Numbers of messages and deliveries, as functions of the database. */
import { NUMBERS } from '../locks.ts';

/** Raised and caught within take_numbers: the numbers are taken. */
const TAKEN = 'CV002';

/**
 * The first of some numbers that follow one another; see NumberSource in src/domain/id.ts. A sequence is never rolled back,
 * but a lock is: the inner block fails in any case, and lets go of it long before the transaction ends. So nothing that
 * happens in between, not even a statement that is cancelled, leaves it locked.
 */
export const TAKE_NUMBERS = `
  CREATE FUNCTION take_numbers(wanted bigint) RETURNS bigint LANGUAGE plpgsql AS $$
  DECLARE
    first_no bigint;
  BEGIN
    BEGIN
      PERFORM pg_advisory_xact_lock(${NUMBERS});
      first_no := greatest(nextval('numbers'), (floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1704067200000) * 4096);
      PERFORM setval('numbers', first_no + wanted - 1);
      RAISE EXCEPTION 'taken' USING ERRCODE = '${TAKEN}';
    EXCEPTION WHEN SQLSTATE '${TAKEN}' THEN
      RETURN first_no;
    END;
  END $$;
`;

/**
 * Lets no number be given any more up to one that was given, as a node knows. Says whether the database did not know of the
 * last one itself: then it went back. The lock ends with the statement.
 */
export const RAISE_NUMBERS = `
  CREATE FUNCTION raise_numbers(given_no bigint, reached_no bigint) RETURNS boolean LANGUAGE plpgsql AS $$
  DECLARE
    last_no bigint;
  BEGIN
    PERFORM pg_advisory_xact_lock(${NUMBERS});
    SELECT last_value INTO last_no FROM numbers;
    IF last_no < greatest(given_no, reached_no) THEN
      PERFORM setval('numbers', greatest(given_no, reached_no));
    END IF;
    RETURN last_no < given_no;
  END $$;
`;
