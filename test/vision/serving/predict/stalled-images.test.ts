// Uploads that stall, of callers whom the route refuses. Goal: they hold nothing of the memory that
// others' images need.

import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createEndpointWorld, type EndpointWorld, FOUND } from "../../../support/endpoint-world.ts";
import { form, png } from "../../../support/media.ts";
import { colleague, type Person } from "../../../support/scripted-node.ts";

const BYTES = 900 * 1024;
/** More than an isolate's room for files would hold at once, copies included. */
const UPLOADS = 90;

let w: EndpointWorld;
let viewer: Person;
const sockets: Socket[] = [];
beforeAll(async () => {
  w = await createEndpointWorld({ uploadBytesMax: 1024 * 1024 });
  viewer = await colleague(w.world, w.admin, "viewer");
});
afterAll(() => {
  for (const socket of sockets) socket.destroy();
  w.cutNodes();
});

/** Sends nearly all of an image, and no more. */
function stall({ token }: Person): void {
  const { hostname, port } = new URL(w.world.urls.vision);
  const socket = connect(Number(port), hostname);
  sockets.push(socket);
  socket.write(
    [
      "POST /api/v1/predict/image HTTP/1.1",
      `Host: ${hostname}:${port}`,
      `Authorization: Bearer ${token}`,
      "Content-Type: multipart/form-data; boundary=cut",
      `Content-Length: ${BYTES}`,
      "",
      "--cut",
      'Content-Disposition: form-data; name="file"; filename="a.png"',
      "Content-Type: image/png",
      "",
      "",
    ].join("\r\n"),
  );
  const begun = new Uint8Array(BYTES - 64 * 1024);
  begun.set(png(64, 48));
  socket.write(begun);
}

it("takes no room from others", async () => {
  await w.opened();
  const content = new Uint8Array(BYTES);
  content.set(png(64, 48));
  expect(await viewer.refused("POST", "/predict/image", form({ content }))).toEqual([
    403,
    "forbidden",
  ]);
  for (let upload = 0; upload < UPLOADS; upload++) stall(viewer);
  const received = () => sockets.every(({ writableLength }) => writableLength === 0);
  await expect.poll(received).toBe(true);
  const ask = () => w.admin.send("POST", "/predict/image", form({ content }));
  // Less than the time after which a stalled upload is given up for lost.
  await expect.poll(async () => (await ask()).status, { timeout: 60_000 }).toBe(200);
  const answer = await ask();
  expect([answer.status, await answer.json()]).toEqual([200, FOUND.predictions]);
});
