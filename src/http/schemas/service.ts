import Type from 'typebox';
import { named } from './fields.ts';

export const ServiceStatusSchema = Type.Object(
  { status: Type.String({ description: 'ok, or ready.', examples: ['ok'] }) },
  named('ServiceStatus', 'Whether the service is there.'),
);

export const MetricsText = Type.Unsafe<string>({
  content: { 'text/plain': { schema: { type: 'string', description: 'Metrics as Prometheus text.' } } },
});
