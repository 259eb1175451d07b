import type { Cidr, EgressPolicy } from '../domain/address.ts';
import type { KeyObject } from 'node:crypto';
import type { Rate } from '../domain/token_bucket.ts';
import type { SettingName, LogLevel, LogFormat } from './settings.ts';

/** All settings, parsed and within their bounds, as `createConvoke` takes them. */
export interface Config {
  host: string;
  port: number;
  /** Null: the address on which the node listens, or the name of its machine if it listens on all addresses. */
  advertised_url: string | null;
  /** Null: replies use advertised_url, and a link uses the address at which its maker reached the service. */
  public_url: string | null;
  /** The name of this environment on the pages; null: none. */
  environment: string | null;
  /** The data directory: DATABASE_FILE is in it. */
  data: string;
  egress_policy: EgressPolicy;
  /** Null: the data is in DATABASE_FILE, and not in PostgreSQL. */
  database_url: string | null;
  /** Null: the key is in a file beside the data. */
  encryption_key: KeyObject | null;
  encryption_key_previous: KeyObject | null;
  retry_schedule_ms: number[];
  expire_after_ms: number;
  trust_clock: boolean;
  retention_deliveries_ms: number;
  retention_messages_ms: number;
  retention_audit_ms: number;
  /** The limits of the loop guard, for meetings without limits of their own; 0: no limit. */
  hop_limit: number;
  pair_limit: number;
  pair_window_s: number;
  max_in_flight: number;
  instance_concurrency: number;
  max_message_bytes: number;
  max_request_bytes_in_flight: number;
  max_connections: number;
  max_feed_listeners: number;
  /** Origins whose pages may call the API with a key. */
  cors_origins: string[];
  /** Origins whose pages may frame the portal. */
  portal_origins: string[];
  /** Proxies whose X-Forwarded-For is believed. */
  trust_proxy: Cidr[];
  /** The limits of requests; null: no limit. */
  send_rate: Rate | null;
  send_rate_per_address: Rate | null;
  register_rate: Rate | null;
  register_rate_per_address: Rate | null;
  change_rate: Rate | null;
  auth_failure_rate: Rate | null;
  /** 0: no limit. The same is true of the next three fields. */
  max_instances: number;
  max_instances_per_key: number;
  max_instances_per_meeting: number;
  max_meetings_per_instance: number;
  /** Null: notices are only logged. */
  notices_meeting: string | null;
  /** Names of the settings that differ from their defaults. */
  changed_settings: SettingName[];
  log_level: LogLevel;
  /** `auto`: pretty when the log goes to a terminal, JSON otherwise. */
  log_format: LogFormat;
}
