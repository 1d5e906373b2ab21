// Accounts, sessions, workspaces and roles, invitations, the audit log, incidents.

import type { Room } from "../base/room.ts";
import { accountRoutes } from "./account-routes.ts";
import { adminRoutes } from "./admin-routes.ts";
import { apiTokenRoutes } from "./api-token-routes.ts";
import { KEPT_ENTRIES } from "./audit.ts";
import { auditRoutes } from "./audit-routes.ts";
import { browserSessionRoutes } from "./browser-session-routes.ts";
import { KEPT_INCIDENTS } from "./incidents/incidents.ts";
import { incidentRoutes } from "./incidents/routes.ts";
import { invitationRoutes } from "./invitation-routes.ts";
import { passwordResetRoutes } from "./password-reset-routes.ts";
import { KEPT_FOR_LOGIN } from "./sessions.ts";

export const auth: Room = {
  routes: [
    accountRoutes,
    browserSessionRoutes,
    apiTokenRoutes,
    passwordResetRoutes,
    adminRoutes,
    auditRoutes,
    invitationRoutes,
    incidentRoutes,
  ].flat(),
  keeps: [...KEPT_FOR_LOGIN, KEPT_ENTRIES, KEPT_INCIDENTS],
};
