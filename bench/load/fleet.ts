import type { TransportName } from '../../src/domain/instance.ts';

/** The instances and meetings of a measurement. Numbers describe them, so that every process makes the same ones. */
export interface Fleet {
  meetings: number;
  /** Instances in each meeting. */
  members: number;
  /** Whether the same instances are in all meetings; otherwise each is in one meeting. */
  shared?: boolean;
  /**
   * The number of its first meeting and of its first instance; 0 when absent. Another fleet then has the lower numbers.
   */
  first?: number;
  /** Where the receivers listen; not used when machines pull. */
  origin: string;
  /** Whether its machines pull: see pullers.ts. */
  pulls?: boolean;
  /** How many members of each meeting never respond; these are the last ones. */
  hanging?: number;
  /**
   * How many members of each meeting have a host name for which the name server never responds; these are the last
   * ones.
   */
  unresolvable?: number;
  /**
   * How many members of each meeting respond but are not counted; these are the last ones. They take the place of
   * members that hang.
   */
  uncounted?: number;
}

export interface Member {
  instance_id: string;
  meeting_id: string;
  agent_id: string;
  transport: TransportName;
  /** Empty when the machine pulls. */
  webhook_url: string;
}

/** How long a pull of the SDK waits, in seconds. */
export const WAIT_S = 55;

/** The secret with which every contender signs. */
export const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

/** All ids have the same length, so that a prepared request fits all of them. */
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

/** The id of an agent that sends and is on no instance. */
export function speakerId(index: number): string {
  return `s${digits(index)}`;
}

/** The instances in the order of their numbers: those of the first meeting first. */
export function* membersOf(fleet: Fleet): Generator<Member> {
  for (let meeting = 0; meeting < fleet.meetings; meeting++) {
    for (let member = 0; member < fleet.members; member++) yield memberOf(fleet, meeting, member);
  }
}

/** The ids of its meetings. */
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
