// Projects, uploads, videos and their frames.

import type { TaskRoom } from "../tasks/room.ts";
import { projectRoutes } from "./projects/routes.ts";
import { directRoutes } from "./uploads/direct-routes.ts";
import { uploadRoutes } from "./uploads/routes.ts";
import { abandonUploads } from "./uploads/uploads.ts";
import { probeEnded, sealFrames, sealProbe } from "./videos/ended.ts";
import { videoRoutes } from "./videos/routes.ts";
import { enqueueMissingProbes } from "./videos/videos.ts";

export const media: TaskRoom = {
  routes: [projectRoutes, videoRoutes, uploadRoutes, directRoutes].flat(),
  handlers: { probe: { seal: sealProbe, ended: probeEnded }, frames: { seal: sealFrames } },
  duties: { probes: enqueueMissingProbes, uploads: abandonUploads },
};
