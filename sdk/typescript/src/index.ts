export { ConvokeClient } from './client.ts';
export type { CallOptions, ConvokeClientOptions, SendOptions } from './client.ts';
export { ConvokeError } from './error.ts';
export { all, pages } from './pages.ts';
export type { PageStart } from './pages.ts';
export { RawJson, rawJson } from './raw_json.ts';
export { createReceiver, VerificationError, verify, verifySignature } from './receiver.ts';
export type { HeadersLike, Push, ReceiverOptions, VerificationReason, VerifyOptions } from './receiver.ts';
export type * from './types.ts';
