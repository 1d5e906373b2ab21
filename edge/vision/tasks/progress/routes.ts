// The WebSocket of live progress. Whoever issues a ticket has checked who may listen to what.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { whole } from "../../../../shared/scalars.ts";
import { ProgressEvent } from "../../../../shared/wire/progress.ts";
import { API } from "../../base/api.ts";
import { anybody, type Route, route } from "../../base/route.ts";
import { LISTENERS_EACH_MAX, LISTENERS_PERSON_MAX, topicOf } from "./progress.ts";
import { verifyTicket } from "./tickets.ts";

const tag = "Progress";
/** Ours have some hundred. */
const TICKET_CHARACTERS_MAX = 2_000;

/** `GET /progress`. */
export const progressRoutes: readonly Route[] = [
  route(
    {
      call: "GET /progress",
      operationId: "openProgress",
      tag,
      summary: "Live progress of a job or run, as a WebSocket",
      description:
        "Beyond the contract. The ticket is the credential, once: `POST /jobs/{job_id}/ticket` gives " +
        `one for a minute, with this route's address. A person has at most ${LISTENERS_EACH_MAX} ` +
        `sockets at a topic, and ${LISTENERS_PERSON_MAX} in all. ` +
        "Each message is a `ProgressEvent`. `seq` numbers the events of a topic without gaps; after " +
        "a lost connection ask for `after=<last seq>` and get what was missed. Without `after`, or " +
        "when it is too long ago, the first message is a " +
        "`snapshot`: the data of all events up to its `seq` laid over each other, `log` left out. " +
        "Lay each later event's `data` over it in the same way.\n\n" +
        '`batch` comes at most four times a second. A reader that sends `{"ack":<seq>}` gets no ' +
        "`batch` while it is 200 events behind; nothing else is ever left out. `end` is the last " +
        "event, and the socket is closed with 1000 after it. A socket is closed with 1008 within a " +
        "minute of its listener's logout or leaving the workspace. Text `ping` is answered `pong`: send " +
        "one every 25 s.\n\n" +
        "A topic `edits:<job_id>` never ends. Its `edit` says up to which number the job's annotations " +
        "changed: whoever knows less than `after_seq` reads the difference. A listener may send " +
        '`{"presence":{"frame_id":"…"}}`, or null: the others get it as `presence`, which is kept no ' +
        "longer than the socket and repeats the number of the last event.",
      who: anybody,
      query: z.object({
        ticket: z
          .string()
          .min(1)
          .max(TICKET_CHARACTERS_MAX)
          .meta({ description: "from the job's ticket route" }),
        after: whole(0).optional().meta({
          description: "the last seq that was seen",
          example: 12,
        }),
      }),
      answers: { 101: { description: "the socket" } },
      errors: ["unauthorized", "busy"],
      never: ["store_unavailable"],
      shapes: { ProgressEvent },
    },
    async (context) => {
      const { service } = context.var;
      const { ticket, after } = context.req.valid("query");
      if (context.req.header("Upgrade")?.toLowerCase() !== "websocket") {
        throw new Failure("invalid_request", "Upgrade: must be websocket");
      }
      const opened = await verifyTicket(service, ticket);
      if (!opened) throw new Failure("unauthorized", "the ticket is no more; ask for a new one");
      const headers: Record<string, string> = {
        Upgrade: "websocket",
        "X-Topic": opened.topic,
        "X-Ticket": opened.id,
        "X-Ticket-Expires": String(opened.expiresAt),
        "X-Account": opened.accountId,
        "X-Session": opened.session,
        "X-Workspace": opened.workspaceId,
        "X-Listeners-Max": String(service.limits.listenersMax),
      };
      if (after !== undefined) headers["X-After"] = String(after);
      const url = new URL(`${API}/progress`, context.req.url);
      const answer = await topicOf(service, opened.topic).fetch(new Request(url, { headers }));
      if (answer.status === 401)
        throw new Failure("unauthorized", "the ticket was used; ask for another");
      if (answer.status === 429) {
        const inAll = answer.headers.get("X-Limit") === "person";
        const count = inAll ? LISTENERS_PERSON_MAX : LISTENERS_EACH_MAX;
        throw new Failure("busy", `you listen at ${count} sockets already; close some`);
      }
      if (answer.status === 503)
        throw new Failure("busy", "too many listeners; ask for the status");
      // A route's declaration has no word for a socket.
      return answer as never;
    },
  ),
];
