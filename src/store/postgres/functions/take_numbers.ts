/** Numbers of messages and deliveries, as functions of the database. */
import { NUMBERS } from '../locks.ts';

/** take_numbers raises and catches this SQLSTATE when it has taken the numbers. */
const TAKEN = 'CV002';

/**
 * Takes numbers that follow one another, and returns the first; see NumberSource in src/domain/id.ts. A rollback
 * releases a lock, but the numbers that a sequence gave stay taken. So the inner block fails on purpose: its rollback
 * releases the lock long before the transaction ends. A cancelled statement releases the lock too.
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
 * Makes sure that the database never again gives a number that a node has seen in use. Returns true when the database
 * does not know that it gave `given_no`, because it went back in time. The lock ends with the statement.
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
