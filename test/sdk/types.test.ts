/**
 * The types of the SDK are equal to those of the server. This checks one type of each kind that scripts/sdk_types.ts
 * writes, and all types that are written by hand. When a type differs, this file does not compile. At run time it tests
 * nothing.
 */
import { test } from 'node:test';
import type { Static, TSchema } from 'typebox';
import type * as sdk from '@convoke/sdk';
import type * as feed from '../../src/domain/feed_event.ts';
import type * as audit from '../../src/http/schemas/audit.ts';
import type * as deliveries from '../../src/http/schemas/deliveries.ts';
import type { EventsQuery } from '../../src/http/schemas/events.ts';
import type * as instances from '../../src/http/schemas/instances.ts';
import type { JoinMeetingBody } from '../../src/http/schemas/meetings.ts';
import type { MessagePageSchema } from '../../src/http/schemas/messages.ts';
import type { pageOf } from '../../src/http/schemas/page.ts';
import type { ProblemSchema } from '../../src/http/schemas/problem.ts';
import type { PushBody } from '../../src/http/schemas/push.ts';
import type { SessionSchema } from '../../src/http/schemas/session.ts';

/** Merges intersections and mapped types, so that only their fields are compared. */
type Plain<T> = T extends readonly (infer Item)[]
  ? Plain<Item>[]
  : T extends object
    ? { [K in keyof T]: Plain<T[K]> }
    : T;

/** A caller may also give undefined for an optional field, because JSON leaves it out. */
type Lenient<T> = T extends readonly unknown[]
  ? T
  : T extends object
    ? { [K in keyof T]: object extends Pick<T, K> ? T[K] | undefined : T[K] }
    : T;

/** Whether two types are equal. This also notices an optional field that only one type has, unlike assignability. */
type Equal<A, B> = (<T>() => T extends Plain<A> ? 1 : 2) extends <T>() => T extends Plain<B> ? 1 : 2 ? true : false;

const same = <A, B>(_equal: Equal<A, B>): void => {};
const answer = <S extends TSchema, T>(_equal: Equal<Static<S>, T>): void => {};
const input = <S extends TSchema, T>(_equal: Equal<Lenient<Static<S>>, T>): void => {};

test('every kind of type that is written for the SDK is the type of its schema on the server', () => {
  // The kinds of fields: named, nested, null, one of several words, list, record, number or text, inherited, optional.
  answer<typeof instances.InstanceSchema, sdk.Instance>(true);
  answer<typeof instances.RegisteredInstanceSchema, sdk.RegisteredInstance>(true);
  answer<typeof instances.DiagnosisSchema, sdk.Diagnosis>(true);
  answer<typeof deliveries.DeliveryWithAttemptsSchema, sdk.DeliveryWithAttempts>(true);
  answer<typeof MessagePageSchema, sdk.MessagePage>(true);
  answer<typeof audit.AuditEntrySchema, sdk.AuditEntry>(true);
  answer<typeof SessionSchema, sdk.Session>(true);
  answer<typeof ProblemSchema, sdk.ProblemDetails>(true);
  input<typeof instances.RegisterBody, sdk.RegisterInput>(true);
  input<typeof instances.PatchInstanceBody, sdk.UpdateInstanceInput>(true);
  input<typeof JoinMeetingBody, sdk.JoinMeetingInput>(true);
  input<typeof audit.ListAuditQuery, sdk.ListAuditQuery>(true);
  input<typeof EventsQuery, sdk.EventsQuery>(true);
});

test('every type that is written by hand for the SDK is the type on the server', () => {
  same<feed.FeedData, sdk.FeedData>(true);
  same<Static<ReturnType<typeof pageOf<typeof instances.InstanceSchema>>>, sdk.Page<sdk.Instance>>(true);
  answer<typeof PushBody, Pick<sdk.Push, 'event' | 'meeting_id' | 'message' | 'target_agents' | 'timestamp'>>(true);
});

test('a field that is missing, new, optional or of another type counts as drift', () => {
  same<{ a: string; b?: number }, { a: string }>(false);
  same<{ a: string; b: number }, { a: string; b?: number }>(false);
  same<{ a: 'x' | 'y' }, { a: 'x' }>(false);
  same<{ a: { b: string | null }[] }, { a: { b: string }[] }>(false);
  same<{ a: unknown }, { a: string }>(false);
  // @ts-expect-error: this is how drift shows
  same<{ a: string }, { a: number }>(true);
});
