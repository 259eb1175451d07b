import type { Static } from 'typebox';
import type { Clock } from '../../delivery/clock.ts';
import type { Engine } from '../../delivery/engine.ts';
import type { PullResult, PullTransport } from '../../delivery/transport/pull_transport.ts';
import { invalidField } from '../../domain/problem.ts';
import type { Store } from '../../store/store.ts';
import { type PullBody, RESULT_BODY_BYTES_MAX } from '../schemas/pull.ts';

type GivenResult = NonNullable<Static<typeof PullBody>['results']>[number];

export type TakenResults = Awaited<ReturnType<typeof takeResults>>;

export interface PullResultsContext {
  store: { deliveries: Pick<Store['deliveries'], 'get'> };
  engine: Pick<Engine, 'written'>;
  pull_transport: Pick<PullTransport, 'take'>;
  clock: Clock;
}

/**
 * Judges the results in a pull, and says what became of each.
 *
 * @throws Problem `invalid_fields` for a result that has both or neither of a status and an obstacle, or a long body;
 * then no result of the pull counts
 */
export function takeResults(context: PullResultsContext, instance_id: string, given: readonly GivenResult[]) {
  return Promise.all(given.map(resultOf).map((result) => take(context, instance_id, result)));
}

function resultOf(given: GivenResult, index: number): PullResult {
  const { delivery_id, attempt, status_code = null, retry_after = null, body = '', not_reached } = given;
  const at = `results.${index}`;
  if ((status_code === null) === (not_reached === undefined))
    throw invalidField(at, 'must have either status_code or not_reached');
  if (Buffer.byteLength(body) > RESULT_BODY_BYTES_MAX)
    throw invalidField(`${at}.body`, `must be a string of at most ${RESULT_BODY_BYTES_MAX} bytes`);
  return { delivery_id, attempt, status_code, detail: not_reached ?? '', retry_after, body };
}

/** Says what became of a result. A result that nobody awaits changes nothing, and the stored delivery shows why. */
async function take(
  { store, engine, pull_transport, clock }: PullResultsContext,
  instance_id: string,
  result: PullResult,
) {
  const { delivery_id, attempt } = result;
  const about = { delivery_id, attempt };
  if (pull_transport.take(instance_id, result)) return { ...about, became: 'counted', state: null } as const;
  await engine.written();
  const row = await store.deliveries.get(delivery_id, clock.now());
  if (row === null || row.instance_id !== instance_id) return { ...about, became: 'unknown', state: null } as const;
  const { state } = row;
  if (attempt > row.attempt_count) return { ...about, became: 'unknown', state } as const;
  const made = row.attempts.find((each) => each.attempt === attempt);
  return { ...about, became: made?.outcome === 'timeout' ? 'late' : 'repeated', state } as const;
}
