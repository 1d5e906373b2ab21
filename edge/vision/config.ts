// Configuration of the vision service.

import type { DurableObjectNamespace, Fetcher, R2Bucket } from "@cloudflare/workers-types";
import { z } from "zod";
import { flag, whole } from "../../shared/scalars.ts";
import { Secret } from "../../shared/secret.ts";
import {
  EDGE_IMAGE_SIZE_DEFAULT,
  EDGE_IMAGE_SIZE_MAX,
  isEdgeImageSize,
} from "../../shared/wire/edge-inference.ts";
import { alertWebhookKeys, checkAlertWebhook } from "../http/alert-webhook.ts";
import {
  binding,
  databaseUrl,
  objectGraceDays,
  optionalSecret,
  parseEnvironment,
  secret,
  truth,
} from "../http/config.ts";
import { publicResolver, resolverAt } from "../http/public-address.ts";
import { type LinkPrefix, type Parts, REGISTRATION_MODES, SERVICE_PREFIXES } from "./base/parts.ts";
import { SEALING_KEY_MIN } from "./base/sealing.ts";

/** Characters of a key that signs. */
const SIGNING_KEY_MIN = 32;
const HOST_FORM = /^[a-z0-9.-]+(:\d{1,5})?$|^\[[0-9a-f:.]+\](:\d{1,5})?$/;

/** Texts between commas, without blanks around them. */
const commaList = () =>
  z
    .string()
    .default("")
    .transform((text) =>
      text
        .split(",")
        .map((one) => one.trim())
        .filter(Boolean),
    );

/** Keys that seal, the first one, and that open; undefined where there is none. */
const sealingKeys = () =>
  commaList()
    .refine(
      (keys) => keys.every(({ length }) => length >= SEALING_KEY_MIN),
      `must be keys of ${SEALING_KEY_MIN} characters or more, with commas between them`,
    )
    .transform((keys) => (keys.length > 0 ? keys.map((key) => new Secret(key)) : undefined));

/** Keys that sign, the newest first; none where there is none. */
const signingKeys = () =>
  commaList()
    .refine(
      (keys) => keys.every(({ length }) => length >= SIGNING_KEY_MIN),
      `must be keys of ${SIGNING_KEY_MIN} characters or more, with commas between them`,
    )
    .transform((keys) => keys.map((key) => new Secret(key)));

const LINK_FORM = /^((?:[^/=\s\\]+\/)+)=([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/** Prefixes of the bucket, each with the workspace that may link what lies under it. */
const linkPrefixes = () =>
  commaList()
    .refine(
      (entries) => entries.every((entry) => LINK_FORM.test(entry)),
      "must be prefix/=workspace_id, with commas between them",
    )
    .transform((entries): LinkPrefix[] =>
      entries.map((entry) => {
        const [, prefix = "", workspaceId = ""] = LINK_FORM.exec(entry) ?? [];
        return { prefix, workspaceId };
      }),
    )
    .refine(
      (entries) =>
        !entries.some(({ prefix }) => SERVICE_PREFIXES.some((own) => prefix.startsWith(own))),
      `must not name prefixes of the service's own: ${SERVICE_PREFIXES.join(", ")}`,
    )
    .refine(
      (entries) => !entries.some(({ prefix }) => /(^|\/)\.{1,2}\//.test(prefix)),
      "must not have dot segments",
    )
    .refine(
      (entries) =>
        !entries.some((one) =>
          entries.some(
            (other) => other.workspaceId !== one.workspaceId && other.prefix.startsWith(one.prefix),
          ),
        ),
      "must not map one prefix, or a part of it, to two workspaces",
    );

const Variables = z.object({
  /** Postgres connection string of the vision database. Required, no default. */
  DATABASE_URL: databaseUrl(),
  /** Videos, frames, exports. Required, no default. */
  MEDIA: binding<R2Bucket>(),
  /** Live progress, one object a topic. Required, no default. */
  PROGRESS: binding<DurableObjectNamespace>(),
  /** Which sockets a person has, one object a person. Required, no default. */
  LISTENERS: binding<DurableObjectNamespace>(),
  /** Wakes waiting nodes. Required, no default. */
  DOORBELL: binding<DurableObjectNamespace>(),
  /** The direct lines to GPU nodes, one object a node. Required, no default. */
  LINES: binding<DurableObjectNamespace>(),
  /** What endpoints' requests came to, one object an endpoint. Required, no default. */
  METERS: binding<DurableObjectNamespace>(),
  /** Sums what every isolate counted, for `/metrics`. Required, no default. */
  COUNTERS: binding<DurableObjectNamespace>(),
  /** Signs access tokens and tickets; at least 32 characters. Required, no default. */
  TOKEN_SECRET: secret().refine(
    (value) => value.reveal().length >= 32,
    "must have at least 32 characters",
  ),
  /**
   * The bucket over S3, path style, up to and with its name: where presigned addresses point.
   * Required, no default.
   */
  S3_URL: z.url({ error: "must be the bucket's S3 address", protocol: /^https?$/ }),
  /** Credentials of that address. Required, no default. */
  S3_ACCESS_KEY_ID: secret(),
  S3_SECRET_ACCESS_KEY: secret(),
  /**
   * `true`: every request comes through Cloudflare, which names its sender's address. Default: no,
   * and what a request says of its address is not believed.
   */
  BEHIND_CLOUDFLARE: truth(),
  /** Largest video that is taken, bytes. Default 20 GiB. */
  UPLOAD_BYTES_MAX: whole(1).default(20 * 1024 ** 3),
  /** What a workspace may store, bytes. Default 1 TiB. */
  WORKSPACE_BYTES_MAX: whole(1).default(1024 ** 4),
  /** What all workspaces that one account made may store together, bytes. Default 8 TiB. */
  ACCOUNT_BYTES_MAX: whole(1).default(8 * 1024 ** 4),
  /** Workspaces that one account may make. Default 50. */
  ACCOUNT_WORKSPACES_MAX: whole(1).default(50),
  /** Sockets that may listen to one topic of progress. Default 8,192. */
  LISTENERS_MAX: whole(1, 32_768).default(8_192),
  /**
   * By when an image to predict on is answered, seconds, whoever looks; a node that has the model
   * open gets half of it. Default 60.
   */
  IMAGE_SECONDS_MAX: whole(2, 85).default(60),
  /**
   * For how long an isolate predicts by its list of the nodes before it reads the list again,
   * seconds; 0: each prediction reads it. Default 1.
   */
  NODE_LIST_SECONDS: whole(0, 10).default(1),
  /**
   * Prefixes of the bucket whose objects a workspace may link as videos, beyond its own
   * `ws/<workspace_id>/`: `footage/north/=<workspace_id>`, with commas between them. Unset: none.
   */
  LINK_PREFIXES: linkPrefixes(),
  /** Days that an entry of the audit log is kept; the database keeps the last 30. Default 730. */
  AUDIT_DAYS: whole(30, 36_500).default(730),
  /**
   * Signs manifests of devices: keys of 32 characters or more with commas between them, all of
   * which sign. Unset: nothing can be rolled out.
   */
  DEVICE_SIGNING_KEY: signingKeys(),
  /**
   * Seals credentials of targets and webhooks at rest: keys of 32 characters or more with commas
   * between them, of which the first seals and all open. Unset: none can be kept.
   */
  SEALING_KEY: sealingKeys(),
  /**
   * Hosts, as `host` or `host:port` with commas between them, that targets and webhooks may be at
   * although they are private or speak plain http. Unset: none.
   */
  OUTBOUND_HOSTS: commaList()
    .transform((hosts) => hosts.map((host) => host.toLowerCase()))
    .refine((hosts) => hosts.every((host) => HOST_FORM.test(host)), "must be hosts with commas"),
  /** A resolver over HTTPS in its JSON form, that names are looked up at. Unset: Cloudflare's. */
  DNS_URL: z.url({ error: "must be a URL", protocol: /^https?$/ }).optional(),
  /** Days that a line of a device's log is kept. Default 30. */
  DEVICE_LOG_DAYS: whole(1, 3_650).default(30),
  /** `true`: requests that succeed are logged too. Default: those that fail alone. */
  LOG_REQUESTS: truth(),
  /** Days that an object is kept after nothing names it any more. */
  OBJECT_GRACE_DAYS: objectGraceDays(),
  /** Who may make an account: anybody, whoever has an invitation, or nobody. Default: anybody. */
  REGISTRATION: z.enum(REGISTRATION_MODES).default("open"),
  /**
   * With it as the invitation the first admin of the default workspace registers, whatever
   * REGISTRATION says, and nobody else becomes admin by coming first. Of no use once there is one.
   */
  BOOTSTRAP_TOKEN: optionalSecret().refine(
    (value) => !value || (value.reveal().length >= 20 && value.reveal().length <= 200),
    "must have 20 to 200 characters",
  ),
  /** Name of a workspace that is made with that first admin, who is its admin. Unset: none. */
  TEAM_WORKSPACE: z.string().trim().min(1).max(200).optional(),
  /** `false`: nobody makes projects in the default workspace, which every user is a viewer of. */
  DEFAULT_WORKSPACE_PROJECTS: flag().default(true),
  /** Bearer of `/metrics`. Unset: that path is 404. */
  METRICS_TOKEN: optionalSecret(),
  ...alertWebhookKeys(),
  /** Hours after which the newest backup is too old. Unset: nobody looks for backups. */
  BACKUP_HOURS_MAX: whole(1, 87_600).optional(),
  /** The Studio's files. Required, no default. */
  ASSETS: binding<Fetcher>(),
  /** The edge-inference service. Default: none, and only GPU nodes predict. */
  INFER: binding<Fetcher>().optional(),
  /** Pixels a side of what is looked at there; 0: nothing is. Default 320. */
  EDGE_IMAGE_SIZE: whole(0, EDGE_IMAGE_SIZE_MAX)
    .refine(isEdgeImageSize, "must be a multiple of 32")
    .default(EDGE_IMAGE_SIZE_DEFAULT),
});

/** Every key that the service reads. */
export const Environment = Variables.superRefine(checkAlertWebhook);

export type Config = z.output<typeof Environment>;

/** Fails with `bad_configuration` naming every bad key. */
export const parseConfig = (environment: object): Config =>
  parseEnvironment(Environment, environment);

/** How addresses that users name are reached. */
export const outboundOf = ({ OUTBOUND_HOSTS, DNS_URL }: Config): Parts["outbound"] => ({
  hosts: OUTBOUND_HOSTS,
  resolve: DNS_URL ? resolverAt(DNS_URL) : publicResolver,
});
