/**
 * The names in spans, by the semantic conventions for messaging 1.43
 * (https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/). The conventions are not stable yet, and
 * their package says to copy such names. `test/traces/traces.slow.ts` compares them with that package.
 */

/**
 * The spans of a message. A meeting is the destination, but its id is not in the name of a span: there are too many
 * meetings for that.
 */
export const SPAN = { accept: 'send', commit: 'commit', wait: 'wait', attempt: 'push' } as const;

export const ATTRIBUTE = {
  system: 'messaging.system',
  operation_name: 'messaging.operation.name',
  operation_type: 'messaging.operation.type',
  meeting_id: 'messaging.destination.name',
  message_id: 'messaging.message.id',
  batch_messages: 'messaging.batch.message_count',
  /** Each instance gets the messages of a meeting for itself, as a consumer group does. */
  instance_id: 'messaging.consumer.group.name',
  server_address: 'server.address',
  server_port: 'server.port',
  status_code: 'http.response.status_code',
  error_type: 'error.type',
} as const;

export const SYSTEM = 'convoke';
export const OPERATION_TYPE = 'send';

/** Attributes for which the conventions have no name. */
export const OWN_ATTRIBUTE = {
  seq: 'convoke.seq',
  delivery_id: 'convoke.delivery_id',
  attempt: 'convoke.attempt',
  transport: 'convoke.transport',
  runtime: 'convoke.runtime',
  deliveries: 'convoke.deliveries_queued',
  repeated: 'convoke.repeated',
} as const;
