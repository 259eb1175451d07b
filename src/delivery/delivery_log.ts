/** The log of pushes: which instances go down and recover, and once a minute what failed. */
import { isCatchUpReason } from '../domain/catch_up.ts';
import { healthOf, type InstanceHealth } from '../domain/instance.ts';
import type { Outcome } from '../domain/outcome.ts';
import type { Log } from './bounded_log.ts';
import type { Clock, Timer } from './clock.ts';
import type { AttemptEvent, SuppressedDelivery, SuppressReason } from './observer.ts';

/** The time that a summary covers. */
const SUMMARY_MS = 60_000;

/**
 * The most bursts that the log tells apart. A burst is a series of deliveries in one meeting that one rule stops. It
 * ends when the rule has stopped no delivery for a minute.
 */
const BURSTS_MAX = 1_000;

/** The most instances that a summary names. */
const NAMED_MAX = 5;

export interface DeliveryLogParts {
  log: Log;
  clock: Clock;
  /** The instances that have something to deliver, with their health. */
  healths: () => Iterable<readonly [instance_id: string, health: InstanceHealth]>;
}

/**
 * Each failed attempt has a line. The line is a warning, or has level debug when the instance is down after the
 * attempt. The summary counts all failed attempts. A success has a line at level debug. No line holds a secret. A line
 * holds a message only when a runtime repeats it in the reason for its failure.
 */
export class DeliveryLog {
  readonly #parts: DeliveryLogParts;
  #failed: { [outcome in Outcome]?: number } = {};
  #went_down = 0;
  #came_back = 0;
  #timer: Timer | null = null;
  /** When a rule last stopped a delivery, by meeting and reason. */
  readonly #bursts = new Map<string, number>();

  constructor(parts: DeliveryLogParts) {
    this.#parts = parts;
  }

  attempted(event: AttemptEvent): void {
    const { log, clock } = this.#parts;
    const { outcome } = event.attempt;
    const [before, after] = [healthOf(event.health_before), healthOf(event.health_after)];
    if (outcome === 'ok') {
      if (log.isLevelEnabled('debug')) log.debug(lineOf(event), 'push delivered');
    } else {
      this.#failed[outcome] = (this.#failed[outcome] ?? 0) + 1;
      if (after !== 'down') log.warn(lineOf(event), 'push failed');
      else if (log.isLevelEnabled('debug')) log.debug(lineOf(event), 'push failed');
      this.#timer ??= clock.after(SUMMARY_MS, () => this.#summarize());
    }
    if (before !== 'down' && after === 'down') this.#wentDown(event);
    else if (before === 'down' && after !== 'down') this.#cameBack(event);
  }

  /** Writes one line for a burst. The later deliveries of the burst get no line; only the metrics count them. */
  suppressed(delivery: SuppressedDelivery, reason: SuppressReason): void {
    const { log, clock } = this.#parts;
    const { delivery_id, message_id, meeting_id, seq, instance_id, origin } = delivery;
    const burst = `${meeting_id}\n${reason}`;
    const now = clock.now();
    const last_at = this.#bursts.get(burst);
    this.#bursts.delete(burst);
    if (this.#bursts.size >= BURSTS_MAX) this.#bursts.clear();
    this.#bursts.set(burst, now);
    if (last_at !== undefined && now - last_at < SUMMARY_MS) return;
    const { from_agent = null, hops = 0 } = origin ?? {};
    // Lists the fields one by one: the object `delivery` also has the message (in `body_head`), which must not get into
    // the log.
    const line = { delivery_id, message_id, meeting_id, seq, instance_id, from_agent };
    if (isCatchUpReason(reason))
      log.info({ ...line, reason }, 'a machine that was away does not get what its membership leaves out');
    else log.warn({ ...line, hops, reason }, 'the loop guard stops agents that answer each other');
  }

  /** Writes the last summary, if an attempt has failed since the summary before. */
  close(): void {
    this.#timer?.cancel();
    if (this.#timer !== null) this.#summarize();
  }

  #wentDown({ instance_id, attempt, health_after: { consecutive_failures } }: AttemptEvent): void {
    this.#went_down++;
    const { outcome, status_code, detail } = attempt;
    this.#parts.log.warn({ instance_id, consecutive_failures, outcome, status_code, detail }, 'instance down');
  }

  #cameBack({ instance_id, health_before: { consecutive_failures } }: AttemptEvent): void {
    this.#came_back++;
    this.#parts.log.info({ instance_id, consecutive_failures }, 'instance back');
  }

  #summarize(): void {
    this.#timer = null;
    const { log, healths } = this.#parts;
    const down: { instance_id: string; health: InstanceHealth }[] = [];
    let instances_down = 0;
    for (const [instance_id, health] of healths()) {
      if (healthOf(health) !== 'down') continue;
      instances_down++;
      const last = down.at(NAMED_MAX - 1);
      if (last !== undefined && last.health.consecutive_failures >= health.consecutive_failures) continue;
      down.push({ instance_id, health });
      down.sort((a, b) => b.health.consecutive_failures - a.health.consecutive_failures);
      down.length = Math.min(down.length, NAMED_MAX);
    }
    const worst = down.map(({ instance_id, health: { consecutive_failures, last_failure } }) => ({
      instance_id,
      consecutive_failures,
      outcome: last_failure?.outcome ?? null,
    }));
    const [failed, went_down, came_back] = [this.#failed, this.#went_down, this.#came_back];
    this.#failed = {};
    this.#went_down = this.#came_back = 0;
    log.warn({ failed, instances_down, went_down, came_back, worst }, 'attempts failed in the last minute');
  }
}

function lineOf(event: AttemptEvent): object {
  const {
    // An instance may have a thousand agents: their names in one line would use up the room of other lines.
    attempt: { response_excerpt: _, answered_agents, ...attempt },
    accepted_at: __,
    health_before: ___,
    health_after: ____,
    ...delivery
  } = event;
  return { ...delivery, ...attempt, ...(answered_agents !== undefined && { agents_answered: answered_agents.length }) };
}
