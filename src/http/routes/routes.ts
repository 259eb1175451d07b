import type { App } from '../context.ts';
import { type ApiKeyContext, apiKeyRoutes } from './api_keys.ts';
import { type AuditContext, auditRoutes } from './audit.ts';
import { type BackupContext, backupRoutes } from './backups.ts';
import { type DeliveryContext, deliveryRoutes } from './deliveries.ts';
import { type DeliveryPushContext, deliveryPushRoutes } from './delivery_push.ts';
import { type DemoContext, demoRoutes } from './demo.ts';
import { type EncryptionContext, encryptionRoutes } from './encryption.ts';
import { type EventContext, eventRoutes } from './events.ts';
import { type ExplanationContext, explanationRoutes } from './explanation.ts';
import { type FigureContext, figureRoutes } from './figures.ts';
import { type InstanceContext, instanceRoutes } from './instances.ts';
import { type InviteContext, inviteRoutes } from './invites.ts';
import { type McpContext, mcpRoutes } from './mcp.ts';
import { type MeetingContext, meetingRoutes } from './meetings.ts';
import { type MessageSearchContext, messageSearchRoutes } from './message_search.ts';
import { type MessageTraceContext, messageTraceRoutes } from './message_trace.ts';
import { type MessageContext, messageRoutes } from './messages.ts';
import { type NodeContext, nodeRoutes } from './nodes.ts';
import { documentRoute } from './openapi.ts';
import { type PortalLinkContext, portalLinkRoutes } from './portal_links.ts';
import { type PullContext, pullRoutes } from './pull.ts';
import { type RecoveryContext, recoveryRoutes } from './recovery.ts';
import { type ReplyContext, replyRoutes } from './replies.ts';
import { type SendContext, sendRoutes } from './sends.ts';
import { type ServiceContext, serviceRoutes } from './service.ts';
import { type OpenSessionContext, openSessionRoutes, type SessionContext, sessionRoutes } from './session.ts';

/** The parts that all routes need together. */
export type RoutesContext = ApiKeyContext &
  AuditContext &
  BackupContext &
  DeliveryContext &
  DeliveryPushContext &
  DemoContext &
  EncryptionContext &
  EventContext &
  ExplanationContext &
  FigureContext &
  InstanceContext &
  InviteContext &
  McpContext &
  MeetingContext &
  MessageContext &
  MessageSearchContext &
  MessageTraceContext &
  NodeContext &
  PortalLinkContext &
  PullContext &
  RecoveryContext &
  ReplyContext &
  SendContext &
  ServiceContext &
  SessionContext;

export function allRoutes(context: RoutesContext): (app: App) => void {
  return (app) => {
    instanceRoutes(app, context);
    recoveryRoutes(app, context);
    pullRoutes(app, context);
    meetingRoutes(app, context);
    explanationRoutes(app, context);
    sendRoutes(app, context);
    messageRoutes(app, context);
    messageSearchRoutes(app, context);
    messageTraceRoutes(app, context);
    replyRoutes(app, context);
    deliveryRoutes(app, context);
    deliveryPushRoutes(app, context);
    eventRoutes(app, context);
    encryptionRoutes(app, context);
    apiKeyRoutes(app, context);
    inviteRoutes(app, context);
    portalLinkRoutes(app, context);
    auditRoutes(app, context);
    backupRoutes(app, context);
    sessionRoutes(app, context);
    nodeRoutes(app, context);
    figureRoutes(app, context);
    demoRoutes(app, context);
    mcpRoutes(app, context);
    serviceRoutes(app, context);
    documentRoute(app);
  };
}

/** The routes that the owner of the data file can use without a service: the keys, the sessions and the audit log. */
export function ownersRoutes(context: ApiKeyContext & AuditContext & OpenSessionContext): (app: App) => void {
  return (app) => {
    apiKeyRoutes(app, context);
    openSessionRoutes(app, context);
    auditRoutes(app, context);
  };
}
