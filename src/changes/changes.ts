/**
 * Every change that callers can make. This folder passes each change to the parts that must know of it: the store, the
 * audit log, the engine and the live feed. Routes and the demo change things only through this folder, so no route can
 * forget a part. To read, routes call the store themselves.
 *
 * Two kinds of change are elsewhere: `Engine.send` stores messages, and `Sessions` begins and ends sessions with their
 * cookies.
 */
import { DeliveryChanges, type DeliveryChangesParts } from './deliveries.ts';
import { InstanceChanges, type InstanceChangesParts } from './instances.ts';
import { InviteChanges, type InviteChangesParts } from './invites.ts';
import { KeyChanges, type KeyChangesParts } from './keys.ts';
import { MeetingChanges, type MeetingChangesParts } from './meetings.ts';
import { MembershipChanges, type MembershipChangesParts } from './memberships.ts';
import { ServiceChanges, type ServiceChangesParts } from './service.ts';

export type ChangesParts = InstanceChangesParts &
  MeetingChangesParts &
  MembershipChangesParts &
  DeliveryChangesParts &
  InviteChangesParts &
  KeyChangesParts &
  ServiceChangesParts;

export class Changes {
  readonly instances: InstanceChanges;
  readonly meetings: MeetingChanges;
  readonly memberships: MembershipChanges;
  readonly deliveries: DeliveryChanges;
  readonly invites: InviteChanges;
  readonly keys: KeyChanges;
  readonly service: ServiceChanges;

  constructor(parts: ChangesParts) {
    this.instances = new InstanceChanges(parts);
    this.meetings = new MeetingChanges(parts);
    this.memberships = new MembershipChanges(parts);
    this.deliveries = new DeliveryChanges(parts);
    this.invites = new InviteChanges(parts);
    this.keys = new KeyChanges(parts);
    this.service = new ServiceChanges(parts);
  }
}
