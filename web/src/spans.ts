import type { GetHistoryQuery } from '@convoke/sdk';

export type Span = NonNullable<GetHistoryQuery['span']>;

/**
 * How long each span of the history is, and how often the page asks for new steps. The service has the lengths too
 * (src/domain/history.ts); test/pages/format.test.ts compares them.
 */
export const SPANS: Record<Span, { span_s: number; every_ms: number }> = {
  '5m': { span_s: 300, every_ms: 2_000 },
  '1h': { span_s: 3_600, every_ms: 10_000 },
  '24h': { span_s: 86_400, every_ms: 60_000 },
};
