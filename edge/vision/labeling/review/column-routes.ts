// All annotations of a job in one binary answer, for readers that slice, sort and count themselves.

import { z } from "@hono/zod-openapi";
import { COLUMNS_MEDIA_TYPE } from "../../../../shared/columns/column-layout.ts";
import { headerBytes } from "../../../../shared/columns/column-writer.ts";
import { Failure } from "../../../../shared/errors.ts";
import { whole } from "../../../../shared/scalars.ts";
import { binary, headers } from "../../../http/description.ts";
import { user } from "../../auth/audience.ts";
import { toHex } from "../../auth/digest.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { columnBlocks, columnsHeader } from "./annotation-columns.ts";

const DESCRIPTION = `
Beyond the contract. All that is stored, also below the job's threshold, in the order of video, frame
and id; polygons are left to the list of a frame. Numbers are little-endian, and each part begins at a
multiple of 8 bytes.

1. The ASCII text \`VANTCOLS\`, the version 1 (u32), the length of the header (u32), and the header:
   JSON \`{version, job_id, edits_seq, after_seq, threshold, classes: [{number, name}], videos:
   [{video_id, filename, width, height, frame_count}], rows}\`, filled up with spaces.
2. Blocks, each a kind (u32) and a count n (u32, at most 16,384) before its columns, filled up with
   zeros. Kind 1 has n rows as the columns id (16 bytes each), frame (u32), revision (u32), track (u32,
   0: none), box (4 × f32: x1, y1, x2, y2), video (u16, index in \`videos\`), class (u16, its
   \`number\`), confidence (u16, 65534 being 1; 65535: none), state (u8: pending, accepted, rejected),
   source (u8: model, person, import, interpolated), flags (u8, sum of 1: duplicate at the job's
   threshold, 2: keyframe, 4: has a polygon; others are reserved).
3. A block of kind 3, whose count is the number of all rows. An answer without it broke off.

\`edits_seq\` is read before the first row: what changes while the answer is sent comes again with the
next difference. With \`after_seq\`, the \`edits_seq\` of an answer before, only rows that changed
since come, then blocks of kind 2, of n ids (16 bytes each) that were deleted since. Where the
\`threshold\` is another one by then, read the whole job: it decides what is a duplicate.`;

const sent = headers("ETag");

/** Routes of columns. */
export const columnRoutes: readonly Route[] = [
  route(
    {
      call: "GET /jobs/{job_id}/annotations.columns",
      operationId: "readAnnotationColumns",
      tag: "Review",
      summary: "All stored annotations of a job as columns of bytes",
      description: DESCRIPTION.trim(),
      who: user,
      params: jobId,
      query: z.object({
        after_seq: whole(0, Number.MAX_SAFE_INTEGER).optional().meta({
          description: "`edits_seq` of an answer before: only what changed or went since",
        }),
      }),
      answers: {
        200: {
          description: "the columns, or a difference",
          headers: sent,
          content: { [COLUMNS_MEDIA_TYPE]: binary },
        },
        304: { description: "nothing changed since If-None-Match", headers: sent },
      },
    },
    async (context) => {
      const { database, log } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { after_seq: afterSeq = null } = context.req.valid("query");
      const header = await columnsHeader(database, job.id, afterSeq);
      if (afterSeq !== null && afterSeq > header.edits_seq) {
        const newest = `the job's newest number is ${header.edits_seq}; read the whole job`;
        throw new Failure("invalid_request", `after_seq: ${newest}`);
      }
      const head = headerBytes(header);
      const name = await nameOf(head);
      const named = { ETag: `W/${name}`, "Cache-Control": "private, no-cache" };
      const isKnown = context.req.header("If-None-Match")?.includes(name);
      const answer = isKnown
        ? new Response(null, { status: 304, headers: named })
        : await columnsAnswer(head, columnBlocks(database, header), {
            headers: { ...named, "Content-Type": COLUMNS_MEDIA_TYPE },
            onBroken: (error) => log.error("columns_broke_off", { job_id: job.id, error }),
          });
      // A route's declaration has no word for bytes.
      return answer as never;
    },
  ),
];

/**
 * Names what the answer is of: its header holds the newest number and all that rows refer to. The
 * same rows may be cut into other blocks, so the name is a weak one.
 */
async function nameOf(head: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", head));
  return `"${toHex(digest.subarray(0, 16))}"`;
}

/** The answer of a header and blocks, each of which is asked for once the one before is taken. */
async function columnsAnswer(
  head: Uint8Array,
  blocks: AsyncGenerator<Uint8Array>,
  { headers, onBroken }: ColumnsAnswerOptions,
): Promise<Response> {
  // A database that is away is told before the answer begins.
  const first = await blocks.next();
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(head);
      if (!first.done) controller.enqueue(first.value);
    },
    async pull(controller) {
      try {
        const { done, value } = await blocks.next();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        // The status was sent: the reader misses the last block, and the log tells why.
        onBroken(error);
        controller.error(error);
      }
    },
    async cancel() {
      await blocks.return(undefined);
    },
  });
  return new Response(body, { headers });
}

interface ColumnsAnswerOptions {
  headers: Record<string, string>;
  /** Told why an answer that had begun broke off. */
  onBroken: (error: unknown) => void;
}
