// Wire shapes of the vision service: accounts, projects, media. Field names are the contract's.

import { z } from "zod";

/** Each may do what those before it may. The README's matrix says what. */
export const ROLES = ["viewer", "annotator", "engineer", "admin"] as const;
export const Role = z.enum(ROLES);
export type Role = z.infer<typeof Role>;

const instant = () => z.iso.datetime();

export const TokenPair = z
  .object({
    access_token: z.string(),
    refresh_token: z.string(),
    token_type: z.literal("bearer"),
  })
  .meta({ id: "TokenPair" });
export type TokenPair = z.infer<typeof TokenPair>;

export const Membership = z.object({
  workspace_id: z.uuid(),
  name: z.string(),
  role: Role,
});
export type Membership = z.infer<typeof Membership>;

export const User = z
  .object({
    id: z.uuid(),
    email: z.string(),
    display_name: z.string(),
    created_at: instant(),
    workspaces: z.array(Membership),
  })
  .meta({ id: "User" });
export type User = z.infer<typeof User>;

export const SignedInUser = User.extend({
  form_token: z
    .string()
    .nullable()
    .meta({
      description:
        "for the header `X-Form-Token` of requests that change something by the session's cookie; " +
        "null for who sent a token",
    }),
}).meta({ id: "SignedInUser" });
export type SignedInUser = z.infer<typeof SignedInUser>;

export const Project = z
  .object({
    project_id: z.uuid(),
    workspace_id: z.uuid(),
    name: z.string(),
    description: z.string(),
    video_count: z.number().int(),
    created_at: instant(),
  })
  .meta({ id: "Project" });
export type Project = z.infer<typeof Project>;

export const Video = z
  .object({
    video_id: z.uuid(),
    project_id: z.uuid(),
    filename: z.string(),
    source: z.enum(["upload", "image", "link"]),
    status: z
      .enum(["probing", "ready", "failed"])
      .meta({ description: "`probing` until a GPU node has read every frame once" }),
    failure: z.string().nullable().meta({ description: "why it is `failed`" }),
    bytes: z.number().int(),
    content_type: z.string(),
    width: z.number().int().nullable(),
    height: z.number().int().nullable(),
    fps: z.number().nullable(),
    duration_seconds: z.number().nullable(),
    frame_count: z.number().int().nullable(),
    thumbnail_url: z.string().nullable(),
    created_at: instant(),
  })
  .meta({ id: "Video" });
export type Video = z.infer<typeof Video>;

/** One of several files that was not taken, and why; the others were. */
export const RefusedFile = z.object({
  filename: z.string(),
  code: z.string(),
  detail: z.string(),
});
export type RefusedFile = z.infer<typeof RefusedFile>;

export const VideoBatch = z
  .object({ videos: z.array(Video), failed: z.array(RefusedFile) })
  .meta({ id: "VideoBatch" });
export type VideoBatch = z.infer<typeof VideoBatch>;

export const Frame = z
  .object({
    frame_id: z.string(),
    video_id: z.uuid(),
    index: z.number().int().meta({ description: "place in display order, from 0" }),
    pts_seconds: z.number().meta({ description: "from the first frame, as decoded" }),
    image_url: z.string(),
  })
  .meta({ id: "Frame" });
export type Frame = z.infer<typeof Frame>;

export const FramePage = z.object({
  items: z.array(Frame),
  total: z.number().int(),
  offset: z.number().int(),
  limit: z.number().int(),
});

/** A frame's identity: its video and its index in display order, never a time. */
export const frameId = (videoId: string, index: number) => `${videoId}.${index}`;

const FRAME_ID = /^([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.(\d{1,9})$/;

/** A frame's identity in a request; whoever reads it answers for one that is none. */
export const FrameId = z.string().meta({ pattern: FRAME_ID.source });

/** The parts of a frame id, or null for what is none. */
export function parseFrameId(text: string): { videoId: string; index: number } | null {
  const [, videoId, index] = FRAME_ID.exec(text) ?? [];
  return videoId === undefined ? null : { videoId, index: Number(index) };
}
