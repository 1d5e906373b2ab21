// Who may call a route, said in its description. One that needs a role names it there itself, and
// declares `forbidden`; what follows from how the others are guarded is added here, so that none is
// silent. A test reads every description.

import type { App } from "../../http/app.ts";
import { API } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";

interface Route {
  path: string;
  description?: string | undefined;
  security?: Record<string, unknown>[] | undefined;
  responses: { 403?: { description: string } };
}

/** Completes the descriptions; to be called when all routes are there. */
export function describeAudience(app: App<Parts>): void {
  for (const definition of app.openAPIRegistry.definitions) {
    if (definition.type !== "route") continue;
    const route: Route = definition.route;
    if (route.responses[403]?.description.includes("`forbidden`")) continue;
    route.description = [route.description, audienceOf(route)].filter(Boolean).join(" ");
  }
}

function audienceOf({ path, security = [] }: Route): string {
  const schemes = security.flatMap((one) => Object.keys(one));
  if (schemes.includes("nodeToken")) return "For GPU nodes.";
  if (schemes.includes("deviceToken")) return "For edge devices.";
  if (!schemes.includes("accessToken")) return "Open: needs no access token.";
  return path.startsWith(`${API}/auth/`)
    ? "For everybody who is logged in."
    : "For every member of the workspace, viewers too.";
}
