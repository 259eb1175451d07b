/**
 * The SDK's hand-written types are the server's schemas: when one of them drifts, this file does not compile.
 * There is nothing to see at run time.
 */
import { test } from 'node:test';
import type { Static, TSchema } from 'typebox';
import type * as sdk from '@convoke/sdk';
import type * as feed from '../src/domain/feed_event.ts';
import type * as http from '../src/http/schemas.ts';

/** Makes intersections and mapped types plain, so that only what they hold is compared. */
type Plain<T> = T extends readonly (infer Item)[]
  ? Plain<Item>[]
  : T extends object
    ? { [K in keyof T]: Plain<T[K]> }
    : T;

/** In what a caller gives, an optional field may be undefined as well: JSON leaves it out. */
type Lenient<T> = T extends readonly unknown[]
  ? T
  : T extends object
    ? { [K in keyof T]: object extends Pick<T, K> ? T[K] | undefined : T[K] }
    : T;

/** Stricter than assignable both ways, which does not see that one side lacks an optional field. */
type Equal<A, B> = (<T>() => T extends Plain<A> ? 1 : 2) extends <T>() => T extends Plain<B> ? 1 : 2 ? true : false;

const same = <A, B>(_equal: Equal<A, B>): void => {};
const answer = <S extends TSchema, T>(_equal: Equal<Static<S>, T>): void => {};
const input = <S extends TSchema, T>(_equal: Equal<Lenient<Static<S>>, T>): void => {};

test('every type of the SDK is the type of the schema on the server', () => {
  answer<typeof http.InstanceSchema, sdk.Instance>(true);
  answer<typeof http.RegisteredInstanceSchema, sdk.RegisteredInstance>(true);
  answer<typeof http.RotatedSecretSchema, sdk.RotatedSecret>(true);
  answer<typeof http.RecoveredSchema, sdk.Recovered>(true);
  answer<typeof http.ReencryptionSchema, sdk.Reencryption>(true);
  answer<typeof http.BackupSchema, sdk.Backup>(true);
  answer<typeof http.BackupProgressSchema, sdk.BackupProgress>(true);
  answer<typeof http.MembershipSchema, sdk.Membership>(true);
  answer<typeof http.LeftMeetingSchema, sdk.LeftMeeting>(true);
  answer<typeof http.MeetingInstanceSchema, sdk.MeetingInstance>(true);
  answer<typeof http.MeetingSchema, sdk.Meeting>(true);
  answer<typeof http.NodeSchema, sdk.ServiceNode>(true);
  answer<typeof http.SentMessageSchema, sdk.SentMessage>(true);
  answer<typeof http.MessageSchema, sdk.Message>(true);
  answer<typeof http.MessagePageSchema, sdk.MessagePage>(true);
  answer<typeof http.AttemptSchema, sdk.Attempt>(true);
  answer<typeof http.DeliverySchema, sdk.Delivery>(true);
  answer<typeof http.DeliveryWithAttemptsSchema, sdk.DeliveryWithAttempts>(true);
  answer<typeof http.DiagnosisSchema, sdk.Diagnosis>(true);
  answer<typeof http.ApiKeySchema, sdk.ApiKey>(true);
  answer<typeof http.ApiKeyWithTokenSchema, sdk.ApiKeyWithToken>(true);
  answer<typeof http.AuditEntrySchema, sdk.AuditEntry>(true);
  answer<typeof http.SessionSchema, sdk.Session>(true);
  answer<typeof http.DemoSchema, sdk.Demo>(true);
  same<feed.FeedData, sdk.FeedData>(true);
  answer<typeof http.ProblemSchema, sdk.ProblemDetails>(true);
  same<Static<ReturnType<typeof http.pageOf<typeof http.InstanceSchema>>>, sdk.Page<sdk.Instance>>(true);

  input<typeof http.RegisterBody, sdk.RegisterInput>(true);
  input<typeof http.PatchInstanceBody, sdk.UpdateInstanceInput>(true);
  input<typeof http.RotateSecretBody, sdk.RotateSecretInput>(true);
  input<typeof http.CreateKeyBody, sdk.CreateKeyInput>(true);
  input<typeof http.RotateKeyBody, sdk.RotateKeyInput>(true);
  input<typeof http.RecoverBody, sdk.RecoverInput>(true);
  input<typeof http.JoinMeetingBody, sdk.JoinMeetingInput>(true);
  input<typeof http.LeaveMeetingBody, sdk.LeaveMeetingInput>(true);
  input<typeof http.ListInstancesQuery, sdk.ListInstancesQuery>(true);
  input<typeof http.ListMeetingsQuery, sdk.ListMeetingsQuery>(true);
  input<typeof http.ListMeetingInstancesQuery, sdk.ListMeetingInstancesQuery>(true);
  input<typeof http.ListMessagesQuery, sdk.ListMessagesQuery>(true);
  input<typeof http.ListAuditQuery, sdk.ListAuditQuery>(true);
  input<typeof http.ListKeysQuery, sdk.PageQuery>(true);
  input<typeof http.EventsQuery, sdk.EventsQuery>(true);
  input<typeof http.ListDeliveriesQuery, sdk.ListDeliveriesQuery>(true);
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
