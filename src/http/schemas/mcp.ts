import Type from 'typebox';
import { expected, named } from './fields.ts';

/** The MCP library judges the content, because that library knows several versions of the protocol. */
export const McpMessageBody = Type.Unsafe<Record<string, unknown>>({
  type: 'object',
  additionalProperties: true,
  ...named('McpMessage', 'A message of the Model Context Protocol: one JSON-RPC request or notification.'),
  ...expected('must be one JSON-RPC message: an object, and not a list of them'),
});
