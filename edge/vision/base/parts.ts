// What every room of the vision service works with, opened once per environment by its main.

import type { DurableObjectNamespace, Fetcher, R2Bucket } from "@cloudflare/workers-types";
import type { Secret } from "../../../shared/secret.ts";
import type { Clock } from "../../../shared/time.ts";
import type { Database } from "../../http/database.ts";
import type { Log } from "../../http/log.ts";
import type { Outbound } from "../../http/outbound.ts";
import type { WebhookTarget } from "../../http/webhook.ts";
import type { SealingKeys } from "./sealing.ts";

/** Folders of the bucket that hold the service's own objects, and those of all workspaces. */
export const SERVICE_PREFIXES: readonly string[] = ["ws/", "imports/"];

/** A prefix of the bucket whose objects a workspace may link. */
export interface LinkPrefix {
  prefix: string;
  workspaceId: string;
}

/** Who may make an account: anybody, whoever has an invitation, or nobody. */
export const REGISTRATION_MODES = ["open", "invited", "closed"] as const;
export type RegistrationMode = (typeof REGISTRATION_MODES)[number];

/** What the service opens once per environment. */
export interface Parts {
  database: Database;
  /** The same database, over a handle that gives up early. */
  health: Database;
  /** Videos, frames and exports. */
  bucket: R2Bucket;
  /** The bucket over S3, and the credentials that sign addresses in it. */
  s3: { url: string; accessKeyId: Secret; secretAccessKey: Secret };
  /** Prefixes of the bucket, beyond `ws/<workspace_id>/`, whose objects a workspace may link. */
  linkPrefixes: readonly LinkPrefix[];
  /** Signs access tokens and tickets. */
  tokenSecret: Secret;
  /** From them come the keys that sign manifests of devices, the newest first. */
  signingSecrets: readonly Secret[];
  limits: {
    uploadBytesMax: number;
    workspaceBytesMax: number;
    /** What all workspaces that one account made may store together. */
    accountBytesMax: number;
    accountWorkspacesMax: number;
    listenersMax: number;
    /** By when an image to predict on is answered, whoever looks. */
    imageMsMax: number;
    /** For how long an isolate predicts by one list of the nodes. */
    nodeListMs: number;
    /** Days that an entry of the audit log is kept. */
    auditDays: number;
    /** Days that a line of a device's log is kept. */
    deviceLogDays: number;
    /** Days that an object is kept after nothing names it any more. */
    objectGraceDays: number;
    /** Hours after which the newest backup is too old; null: nobody looks for backups. */
    backupHoursMax: number | null;
  };
  /** Who may make an account. */
  registration: {
    mode: RegistrationMode;
    /** Makes the first admin of the default workspace, once. */
    bootstrapToken: Secret | undefined;
    /** Name of the workspace that is made with that admin; undefined: none. */
    teamWorkspace: string | undefined;
  };
  /** Whether projects may lie in the default workspace, which every user is a viewer of. */
  defaultHoldsProjects: boolean;
  /** Whether requests that succeed are logged too. */
  logsAll: boolean;
  /** Bearer of `/metrics`; without it that path is not there. */
  metricsToken: Secret | undefined;
  /** Whether Cloudflare names the address of a request's sender. */
  behindCloudflare: boolean;
  /** Live progress, one object a topic; and the bell that wakes waiting nodes. */
  topics: DurableObjectNamespace;
  doorbell: DurableObjectNamespace;
  /** The direct lines to GPU nodes, one object a node. */
  lines: DurableObjectNamespace;
  /** What endpoints' requests came to, one object an endpoint. */
  meters: DurableObjectNamespace;
  /** One object that sums what every isolate counted. */
  counters: DurableObjectNamespace;
  /** Inference where no node is, at a square of so many pixels a side; null: there is none. */
  edge: { service: Pick<Fetcher, "fetch">; imageSize: number } | null;
  /** What says what an image looks like; null: nothing does. */
  hasher: Pick<Fetcher, "fetch"> | null;
  /** The Studio's files. */
  studio: Pick<Fetcher, "fetch">;
  /** Seals what users entrust to the service. */
  sealing: SealingKeys;
  /** How addresses that users name are reached. */
  outbound: Outbound;
  /** Where the installation's own incidents are told; null: nowhere. */
  operatorWebhook: WebhookTarget | null;
  clock: Clock;
  log: Log;
}
