// Who may call a route: whoever has an access token or a session's cookie, and of those admins and
// operators alone.

import type { MiddlewareHandler } from "hono";
import { Failure } from "../../../shared/errors.ts";
import type { Audience } from "../../http/route.ts";
import { FORM_HEADER, SESSION_COOKIE } from "./browser-cookie.ts";
import { authenticate, callerOf, realmOf } from "./scope.ts";

/** Whoever has a token or a session's cookie: the handler looks at what is the caller's alone. */
export const loggedIn = {
  schemes: {
    accessToken: {
      type: "http",
      scheme: "bearer",
      description: "an access token (a JWT), or a personal API token of `POST /auth/tokens`",
    },
    sessionCookie: {
      type: "apiKey",
      in: "cookie",
      name: SESSION_COOKIE,
      description:
        "the cookie of `POST /auth/session`, for pages of the same origin: it counts where no " +
        "`Authorization` is sent, and an answer may set it anew. What changes something also needs " +
        `the header \`${FORM_HEADER}\`: the \`form_token\` that \`GET /auth/me\` answers`,
    },
  },
  guards: [authenticate],
  description: "For everybody who is logged in.",
  errorsOfChanges: ["form_refused"],
} as const satisfies Audience;

/** Fails with `forbidden` for an API token: a stolen one must not take over the account. */
const requireSession: MiddlewareHandler = async (context, next) => {
  if (callerOf(context).apiToken) {
    const detail = "an API token cannot manage accounts; log in and send that access token";
    throw new Failure("forbidden", detail);
  }
  await next();
};

/** Whoever has an access token, and no program with an API token. */
export const inPerson = {
  ...loggedIn,
  guards: [authenticate, requireSession],
  description: "For everybody who is logged in, but no API token.",
  errors: ["forbidden"],
} as const satisfies Audience;

/** Members of the workspace of what is asked for: the handler looks for it, and at their role. */
export const user = {
  ...loggedIn,
  description: "For every member of the workspace, viewers too.",
  errorsOfChanges: ["forbidden", ...loggedIn.errorsOfChanges],
} as const satisfies Audience;

const requireAdmin: MiddlewareHandler = async (context, next) => {
  realmOf(callerOf(context));
  await next();
};

/** Who is admin of at least one workspace. */
export const admin: Audience = {
  schemes: loggedIn.schemes,
  guards: [authenticate, requireAdmin],
  errors: ["forbidden"],
  errorsOfChanges: loggedIn.errorsOfChanges,
};

const requireOperator: MiddlewareHandler = async (context, next) => {
  if (!callerOf(context).operator) {
    const detail = "this needs the role admin in the default workspace";
    throw new Failure("forbidden", detail, { data: { role_needed: "admin" } });
  }
  await next();
};

/** Operators: who is admin of the default workspace. */
export const operator: Audience = {
  schemes: loggedIn.schemes,
  guards: [authenticate, requireOperator],
  errors: ["forbidden"],
  errorsOfChanges: loggedIn.errorsOfChanges,
};

/** Admins with an access token: what an API token gave would outlive it. */
export const adminInPerson: Audience = {
  ...admin,
  guards: [...admin.guards, requireSession],
};

/** Operators with an access token, and no program of theirs with an API token. */
export const operatorInPerson: Audience = {
  ...operator,
  guards: [...operator.guards, requireSession],
};
