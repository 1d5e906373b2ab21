// Accounts, sessions, workspaces and roles, invitations, the audit log, incidents.

import type { Room } from "../base/room.ts";
import { accountRoutes } from "./account-routes.ts";
import { adminRoutes } from "./admin-routes.ts";
import { forgetAuditEntries } from "./audit.ts";
import { auditRoutes } from "./audit-routes.ts";
import { incidentRoutes } from "./incidents/routes.ts";
import { invitationRoutes } from "./invitation-routes.ts";
import { forgetExpired } from "./sessions.ts";

export const auth: Room = {
  routes: [accountRoutes, adminRoutes, auditRoutes, invitationRoutes, incidentRoutes].flat(),
  duties: { expired: forgetExpired, audit: forgetAuditEntries },
};
