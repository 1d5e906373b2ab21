// The log of what administrators did, for those who rule where it was done.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../shared/errors.ts";
import { whole } from "../../../shared/scalars.ts";
import { INSTANT_FORM, parseInstant } from "../../../shared/time.ts";
import { json } from "../../http/route.ts";
import { name } from "../../http/texts.ts";
import { type Route, route } from "../base/route.ts";
import { admin } from "./audience.ts";
import { ACTOR_KINDS, AUDIT_ACTIONS, DELETED_USER, listAuditEntries } from "./audit.ts";
import { callerOf, realmOf } from "./scope.ts";

const tag = "Administration";
const ENTRIES_MAX = 500;

const fields = z.record(z.string(), z.unknown()).nullable();
const AuditEntry = z
  .object({
    entry_id: z.number().int().meta({ description: "counts up; not without gaps" }),
    at: z.iso.datetime(),
    actor_id: z.uuid().nullable().meta({ description: "who did it; null: the service itself" }),
    actor_name: z
      .string()
      .nullable()
      .meta({
        description: `the name that others see, as it is now; \`${DELETED_USER}\` where it is gone`,
      }),
    actor_kind: z.enum(ACTOR_KINDS).meta({
      description: "what the actor was then: `operator` is an admin of the default workspace",
    }),
    token_id: z
      .uuid()
      .nullable()
      .meta({ description: "the actor's API token that sent the request; null: a session did" }),
    action: z.enum(AUDIT_ACTIONS).meta({ description: "the operation's id in this description" }),
    subject: z.string().meta({ description: "what it was done to, such as `account:<id>`" }),
    workspace_id: z
      .uuid()
      .nullable()
      .meta({ description: "whose entry it is; null: the installation's, for operators" }),
    before: fields.meta({
      description: "the changed fields as they were; null: there was nothing",
    }),
    after: fields.meta({ description: "the changed fields as they are since" }),
    request_id: z
      .string()
      .nullable()
      .meta({ description: "the request's `X-Request-Id`; null of what no request did" }),
  })
  .meta({ id: "AuditEntry" });

/** An instant in a query; a date alone is its start in UTC. */
const instant = () =>
  z
    .string()
    .regex(new RegExp(`^${INSTANT_FORM}$`), "must be a date or datetime: 2026-01-31T05:20:00Z");

/** The route of the audit log. */
export const auditRoutes: readonly Route[] = [
  route(
    {
      call: "GET /admin/audit",
      operationId: "listAuditEntries",
      tag,
      summary: "What administrators did, newest first",
      description:
        "Beyond the contract. Needs the role admin; of the workspaces that you are admin of, an " +
        "operator of all, and of the installation. Every change by `/admin/*`, and every move of a " +
        "model's name, is written in the same statement as the change itself, and nobody can change " +
        "or delete an entry. Entries are kept for as long as the installation says (`AUDIT_DAYS`).",
      who: admin,
      query: z.object({
        actor_id: z.uuid().optional().meta({ description: "only what this account did" }),
        action: z.enum(AUDIT_ACTIONS).optional().meta({ description: "only this operation" }),
        subject: name().max(200).optional().meta({
          description: "only what was done to this, such as `account:<id>`",
        }),
        workspace_id: z.uuid().optional().meta({ description: "only of this workspace" }),
        from: instant().optional().meta({ description: "only from this instant on" }),
        to: instant().optional().meta({ description: "only before this instant" }),
        cursor: whole(1).optional().meta({ description: "`next` of the page before" }),
        limit: whole(1, ENTRIES_MAX).default(100),
      }),
      answers: {
        200: json(
          "a page of entries",
          z.object({
            items: z.array(AuditEntry),
            next: z
              .number()
              .int()
              .nullable()
              .meta({ description: "`cursor` of the page that follows; null: there is none" }),
          }),
        ),
      },
    },
    async (context) => {
      const realm = realmOf(callerOf(context));
      const { actor_id, workspace_id, cursor, from, to, ...others } = context.req.valid("query");
      const bounds = {
        from: from === undefined ? null : parseInstant(from, "up"),
        to: to === undefined ? null : parseInstant(to, "up"),
      };
      if (bounds.from !== null && bounds.to !== null && bounds.from >= bounds.to) {
        throw new Failure("invalid_request", "from: must be before to");
      }
      const filter = {
        ...others,
        actorId: actor_id,
        workspaceId: workspace_id,
        from: bounds.from ?? undefined,
        to: bounds.to ?? undefined,
        before: cursor,
      };
      return context.json(await listAuditEntries(context.var.service, realm, filter), 200);
    },
  ),
];
