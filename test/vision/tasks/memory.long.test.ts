// Sockets that come and go leave nothing behind: each makes room for the next one, and the memory
// of workerd stays where it is. It grows at first, until V8 has found the size of its heap.

import { expect, it } from "vitest";
import { WebSocket } from "ws";
import { issueTicket } from "../../../edge/vision/tasks/progress/tickets.ts";
import { workerdBytes, workerdPid } from "../../support/memory.ts";
import { newGuest, tokenParts } from "../../support/nodes.ts";
import { createWorld } from "../../support/world.ts";

const AT_ONCE = 16;
const WARM = 4_000;
const BETWEEN = 2_400;
/** Memory is collected now and then: it counts what is least over so many sockets. */
const MEASURED = 800;
const SLICES = 10;
/**
 * 25 kilobytes a socket. Garbage lies where memory is there: 7 kilobytes a socket here, at times
 * ten; of 24,000 sockets it was 110 megabytes after 16,000, and then no more.
 */
const GROWTH_MAX = 25_000 * (MEASURED + BETWEEN);

it("takes thousands of sockets one after another without keeping any of them", async () => {
  const world = await createWorld({
    services: ["vision"],
    environment: { vision: { LISTENERS_MAX: String(4 * AT_ONCE) } },
  });
  const topic = `label:${crypto.randomUUID()}`;
  const refused: number[] = [];
  const guests = Array.from({ length: AT_ONCE }, () => newGuest());
  const comeAndGo = async (guest: ReturnType<typeof newGuest>, politely: boolean) => {
    const { url } = await issueTicket(tokenParts, { topic, ...guest });
    const socket = new WebSocket(new URL(url, world.urls.vision)).on("error", () => {});
    const gone = new Promise<void>((done) => socket.on("close", () => done()));
    socket.on("unexpected-response", (_, { statusCode }) => {
      refused.push(statusCode ?? 0);
      socket.terminate();
    });
    socket.on("message", () => (politely ? socket.close() : socket.terminate()));
    await gone;
  };
  const cycle = (sockets: number) =>
    Promise.all(
      guests.map(async (guest) => {
        for (let index = 0; index < sockets / AT_ONCE; index++) {
          await comeAndGo(guest, index % 2 === 0);
        }
      }),
    );
  const pid = workerdPid();
  const bytesMin = async () => {
    let bytes = Number.POSITIVE_INFINITY;
    for (let slice = 0; slice < SLICES; slice++) {
      await cycle(MEASURED / SLICES);
      bytes = Math.min(bytes, workerdBytes(pid));
    }
    return bytes;
  };
  await cycle(WARM);
  const before = await bytesMin();
  await cycle(BETWEEN);
  const after = await bytesMin();
  expect(refused).toEqual([]);
  expect(after - before).toBeLessThan(GROWTH_MAX);
});
