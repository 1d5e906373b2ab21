// Wire shapes of saved workflows: their versions, what is served of them, how that moved, how they
// are used, and what waits to be sent. Definitions are `workflow/definition.ts`; times are UTC.

import { z } from "zod";
import { SECTIONS } from "../workflow/block.ts";
import { Json, KindName, WorkflowDefinition, WorkflowProblem } from "../workflow/definition.ts";

const instant = () => z.iso.datetime();
const count = () => z.number().int().min(0);

/** What the description says of a secret's name, too. */
export const SECRET_NAME_FORM = "^[A-Za-z0-9_-]{1,64}$";

export const Workflow = z
  .object({
    workflow_id: z.uuid().meta({ description: "the workflow's id" }),
    workspace_id: z.uuid(),
    slug: z.string().meta({ description: "its name in addresses, one of a kind in its workspace" }),
    name: z.string(),
    description: z.string(),
    version: z.number().int().meta({ description: "its newest version, from 1" }),
    deployed_version: z.number().int().nullable().meta({
      description: "the version that is served; null where none is",
    }),
    deployed_at: instant().nullable().meta({ description: "when that was deployed" }),
    revision: z.number().int().meta({ description: "counts up with each change and each move" }),
    created_at: instant(),
    updated_at: instant().meta({ description: "when it last changed or moved" }),
  })
  .meta({ id: "Workflow" });
export type Workflow = z.infer<typeof Workflow>;

const Port = z
  .object({
    name: z.string().meta({ description: "its name" }),
    kind: KindName.meta({ description: "kind of its values" }),
  })
  .meta({ id: "WorkflowPort" });

export const PlannedPorts = z.object({
  inputs: z
    .array(
      Port.extend({ required: z.boolean().meta({ description: "whether it has no default" }) }),
    )
    .meta({ description: "what a run takes" }),
  outputs: z
    .array(
      Port.extend({
        depth: count().meta({ description: "how many lists deep its values lie; 0 is one value" }),
      }),
    )
    .meta({ description: "what a run gives; empty where there are problems" }),
  runs_on: z
    .enum(["anywhere", "node"])
    .nullable()
    .meta({ description: "who runs it; null where there are problems" }),
  problems: z.array(WorkflowProblem).meta({ description: "what keeps it from being run" }),
});
export type PlannedPorts = z.infer<typeof PlannedPorts>;

export const WorkflowCheck = PlannedPorts.extend({
  ok: z.boolean().meta({ description: "whether it can be run" }),
}).meta({ id: "WorkflowCheck" });
export type WorkflowCheck = z.infer<typeof WorkflowCheck>;

export const WorkflowDetail = Workflow.extend({
  shown_version: z.number().int().meta({ description: "the version that `definition` is of" }),
  definition: WorkflowDefinition,
  ...PlannedPorts.shape,
}).meta({ id: "WorkflowDetail" });
export type WorkflowDetail = z.infer<typeof WorkflowDetail>;

export const WorkflowVersion = z
  .object({
    version_id: z.uuid().meta({ description: "the version's id" }),
    version: z.number().int().meta({ description: "its number, from 1" }),
    steps: count().meta({ description: "steps of its definition" }),
    deployed: z.boolean().meta({ description: "whether it is served" }),
    created_by: z.uuid().nullable().meta({ description: "the account that saved it" }),
    created_at: instant(),
  })
  .meta({ id: "WorkflowVersion" });
export type WorkflowVersion = z.infer<typeof WorkflowVersion>;

export const WORKFLOW_MOVES = ["deploy", "rollback", "delete"] as const;

export const WorkflowMove = z
  .object({
    move_id: z.number().int(),
    workflow_id: z.uuid().meta({ description: "the workflow that had the slug" }),
    kind: z.enum(WORKFLOW_MOVES),
    before: z.number().int().nullable().meta({
      description: "the version that was served; null where none was",
    }),
    after: z.number().int().nullable().meta({
      description: "the version that was served from then on; null where none was",
    }),
    rollback_of: z.number().int().nullable().meta({
      description: "of a rollback: the move that it took back, with all after it",
    }),
    actor_id: z.uuid().nullable(),
    at: instant(),
  })
  .meta({ id: "WorkflowMove" });
export type WorkflowMove = z.infer<typeof WorkflowMove>;

export const USAGE_WINDOWS = ["24h", "7d", "30d"] as const;
export type UsageWindow = (typeof USAGE_WINDOWS)[number];

const usage = {
  runs: count().meta({ description: "runs of the deployed workflow, dry ones among them" }),
  failures: count().meta({ description: "of them, those that failed" }),
  dry_runs: count().meta({ description: "of them, dry ones" }),
  latency_ms: z
    .object({
      p50: z.number().nullable(),
      p95: z.number().nullable(),
    })
    .meta({
      description: "milliseconds of runs that ended well, within 1 %; null where there are none",
    }),
};

export const WorkflowUsage = z
  .object({
    workflow_id: z.uuid().meta({ description: "the workflow's id" }),
    window: z.enum(USAGE_WINDOWS).meta({ description: "how far back it goes" }),
    since: instant().meta({ description: "the window's beginning, a full hour" }),
    ...usage,
    versions: z
      .array(z.object({ version: z.number().int().meta({ description: "the version" }), ...usage }))
      .meta({ description: "the same by version, the newest first" }),
  })
  .meta({ id: "WorkflowUsage" });
export type WorkflowUsage = z.infer<typeof WorkflowUsage>;

export const WorkflowSecret = z
  .object({
    workspace_id: z.uuid(),
    name: z.string().meta({ description: "by which workflows name it" }),
    created_at: instant(),
    updated_at: instant().meta({ description: "when it was last given a value" }),
  })
  .meta({ id: "WorkflowSecret" });
export type WorkflowSecret = z.infer<typeof WorkflowSecret>;

export const DELIVERY_STATUSES = ["pending", "delivered", "given_up"] as const;

export const WorkflowDelivery = z
  .object({
    delivery_id: z.uuid().meta({ description: "the delivery's id" }),
    workspace_id: z.uuid(),
    workflow_id: z.uuid().nullable().meta({
      description: "the deployed workflow that ran; null of a run that was given its definition",
    }),
    run_id: z.uuid().meta({ description: "the run that asked for it" }),
    step: z.string().meta({ description: "the sink's step" }),
    element: z.array(z.number().int()).meta({ description: "index of its element at each level" }),
    status: z.enum(DELIVERY_STATUSES).meta({
      description: "`given_up`: six attempts within a day have failed",
    }),
    attempts: count().meta({ description: "that were made" }),
    last_error: z.string().nullable().meta({
      description: "why the last attempt failed, without address and secrets",
    }),
    created_at: instant(),
    ended_at: instant().nullable().meta({ description: "null while it is pending" }),
  })
  .meta({ id: "WorkflowDelivery" });
export type WorkflowDelivery = z.infer<typeof WorkflowDelivery>;

const port = {
  name: z.string().meta({ description: "its name" }),
  meaning: z.string().meta({ description: "what it is" }),
};

export const WorkflowBlock = z
  .object({
    type: z.string().meta({ description: "`name@version`, as steps name it" }),
    title: z.string(),
    description: z.string(),
    section: z.enum(SECTIONS).meta({ description: "section of the catalogue" }),
    inputs: z
      .array(
        z.object({
          ...port,
          kind: KindName.meta({ description: "kind of what it takes" }),
          required: z.boolean().meta({ description: "whether a step must give it" }),
          default: Json.optional().meta({ description: "what an open port gives" }),
          batch: z.enum(["one", "all"]).meta({
            description: "`all`: it takes the innermost batch as a list",
          }),
          takes_masked: z.boolean().meta({ description: "whether it is given masked elements" }),
        }),
      )
      .meta({ description: "what steps give it" }),
    outputs: z
      .array(
        z.object({
          ...port,
          kind: KindName.nullable().meta({ description: "null where it is that of an input" }),
          like: z.string().nullable().meta({ description: "the input whose kind it has" }),
          tracked: z.boolean().meta({ description: "whether its objects have ids of tracks" }),
          deepens: z.boolean().meta({ description: "whether each is an element of its own" }),
        }),
      )
      .meta({ description: "what it makes" }),
    has_more_ports: z.boolean().meta({ description: "whether its parameters decide on ports" }),
    parameters: z.record(z.string(), Json).meta({ description: "JSON schema of its literals" }),
    runs_on: z.enum(["anywhere", "node"]).meta({ description: "who runs it" }),
    purity: z.enum(["pure", "stateful", "sink"]).meta({
      description: "`stateful`: it remembers; `sink`: it asks for something outside",
    }),
    cost: z.enum(["free", "pixels", "model"]).meta({ description: "what an element costs" }),
    // Beside `type`, a field named `example` makes linters take the entry for a schema.
    worked_example: z.record(z.string(), Json).meta({
      description: "inputs, parameters and outputs",
    }),
  })
  .meta({ id: "WorkflowBlock" });
