// Bodies and parameters of requests about workflows.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { SECRET_NAME_FORM } from "../../../../shared/wire/workflows.ts";
import { WorkflowDefinition } from "../../../../shared/workflow/definition.ts";
import { text, title } from "../../../http/texts.ts";
import { Slug } from "../../serving/endpoints/bodies.ts";

/** Bytes of a body with a definition. */
export const DEFINITION_BYTES_MAX = 2 * 1024 * 1024;
/** Characters of a secret. */
const SECRET_MAX = 10_000;

/** The name of a workflow in addresses. */
export const WorkflowSlug = Slug.meta({ description: "the workflow's name in addresses" });
export const slugParam = z.object({ slug: WorkflowSlug });
export const slugQuery = {
  workspace_id: z.uuid().optional().meta({
    description: "whose; required where several of yours have a workflow of this slug",
  }),
};

const whose = z.uuid().optional().meta({
  description: "whose; required where you are an engineer of several workspaces",
});
const description = () => text().max(2_000);
const revision = z.int().min(1).max(2_147_483_647).optional().meta({
  description: "the revision that you saw: another one is 409; without it the newest is changed",
});

/** A new workflow. */
export const WorkflowBody = z.strictObject({
  slug: WorkflowSlug.optional().meta({
    description: "its name in addresses; without one it is made of `name`",
  }),
  name: title(),
  workspace_id: whose,
  description: description().default(""),
  definition: WorkflowDefinition,
});

/** A workflow's next version. */
export const SaveBody = z.strictObject({
  revision,
  name: title().optional(),
  description: description().optional(),
  definition: WorkflowDefinition,
});

/** What is to be served. */
export const DeployBody = z.strictObject({
  version: z
    .int()
    .min(1)
    .max(2_147_483_647)
    .optional()
    .meta({ description: "without one the newest" }),
  revision,
});

/** A definition that is to be checked. */
export const CheckBody = z.strictObject({
  workspace_id: z.uuid().optional().meta({
    description:
      "whose workflows, secrets and projects it may name; required where you are in several",
  }),
  definition: WorkflowDefinition,
});

export const secretParam = z.object({
  name: z
    .string()
    .regex(new RegExp(SECRET_NAME_FORM), "must be 1 to 64 letters, digits, _ and -")
    .meta({ description: "the secret's name" }),
});

/** A secret's value. */
export const SecretBody = z.strictObject({
  workspace_id: whose,
  value: text().min(1).max(SECRET_MAX).meta({
    description: "sealed, shown to nobody, and sent only to where a workflow's sink sends it",
  }),
});

/** The slug that a name makes: its letters and digits in lower case, hyphens between. */
export function slugOf(name: string): string {
  const words = name
    .normalize("NFKD")
    .toLowerCase()
    .replaceAll(/\p{M}/gu, "")
    .split(/[^a-z0-9]+/);
  const slug = words.filter(Boolean).join("-").slice(0, 63).replace(/-$/, "");
  if (slug) return slug;
  throw new Failure(
    "invalid_request",
    "slug: give one, since the name has no letters a-z or digits",
  );
}
