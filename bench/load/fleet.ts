import type { TransportName } from '../../src/domain/instance.ts';

/** The instances and meetings of a measurement. A few numbers describe them, so every process computes the same ids. */
export interface Fleet {
  meetings: number;
  /** Instances in each meeting. */
  members: number;
  /** Whether the same instances are in all meetings; otherwise each instance is in one meeting. */
  shared?: boolean;
  /**
   * The number of the first meeting and of the first instance of this fleet; 0 when absent. It is higher when another
   * fleet has the lower numbers.
   */
  first?: number;
  /** Where the receivers listen; not used when the machines pull. */
  origin: string;
  /** Whether the machines pull: see pullers.ts. */
  pulls?: boolean;
  /** How many members of each meeting never respond. These are the last members. */
  hanging?: number;
  /**
   * How many members of each meeting have a host name for which the name server never responds. These are the last
   * members.
   */
  unresolvable?: number;
  /**
   * How many members of each meeting respond but are not counted. These are the last members. A row for comparison has
   * such members where the other row has members that do not respond.
   */
  uncounted?: number;
}

export interface Member {
  instance_id: string;
  meeting_id: string;
  agent_id: string;
  transport: TransportName;
  /** The address of the receiver; empty when the machine pulls. */
  webhook_url: string;
}

/** How long a pull of the SDK waits, in seconds. */
export const WAIT_S = 55;

/** The secret with which every contender signs. */
export const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

/** All ids have the same length, so that senders change only digits in a prepared request. */
export const ID_DIGITS = 6;

export function meetingId(index: number): string {
  return `m${digits(index)}`;
}

export function instanceId(index: number): string {
  return `i${digits(index)}`;
}

export function agentId(index: number): string {
  return `a${digits(index)}`;
}

/** The id of an agent that sends messages and that no instance hosts. */
export function speakerId(index: number): string {
  return `s${digits(index)}`;
}

/** The members of all meetings, meeting by meeting. */
export function* membersOf(fleet: Fleet): Generator<Member> {
  for (let meeting = 0; meeting < fleet.meetings; meeting++) {
    for (let member = 0; member < fleet.members; member++) yield memberOf(fleet, meeting, member);
  }
}

/** The ids of the meetings of a fleet. */
export function meetingsOf({ meetings, first = 0 }: Fleet): string[] {
  return Array.from({ length: meetings }, (_, meeting) => meetingId(first + meeting));
}

export function memberOf(fleet: Fleet, meeting: number, member: number): Member {
  const { first = 0 } = fleet;
  const number = first + (fleet.shared === true ? 0 : meeting * fleet.members) + member;
  return {
    instance_id: instanceId(number),
    meeting_id: meetingId(first + meeting),
    agent_id: agentId(member),
    transport: fleet.pulls === true ? 'pull' : 'webhook',
    webhook_url: fleet.pulls === true ? '' : urlOf(fleet, member, number),
  };
}

/** How many members of each meeting respond and are counted. */
export function answering({ members, hanging = 0, unresolvable = 0, uncounted = 0 }: Fleet): number {
  return members - hanging - unresolvable - uncounted;
}

function urlOf(fleet: Fleet, member: number, number: number): string {
  if (member < answering(fleet)) return `${fleet.origin}/push/${number}`;
  if (fleet.uncounted) return `${fleet.origin}/else/${number}`;
  if (fleet.hanging) return `${fleet.origin}/hang/${number}`;
  return `http://h${number}.bench.test/push/${number}`;
}

function digits(index: number): string {
  return String(index).padStart(ID_DIGITS, '0');
}
