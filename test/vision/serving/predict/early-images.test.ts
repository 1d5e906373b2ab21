// Images that are taken in while the database is asked for the model. Goal: of two failures the
// model's is told, as if it had been asked first; and whatever fails lets go of the memory.

import { afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import {
  createEndpointWorld,
  type EndpointWorld,
  FOUND,
  refusal,
} from "../../../support/endpoint-world.ts";
import { form, png, text } from "../../../support/media.ts";

const KILOBYTES = 900;
/** Twice as many as an isolate's room for files would hold at once. */
const REQUESTS = 2 * Math.ceil((64 * 1024) / (2 * KILOBYTES));

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld({ uploadBytesMax: 1024 * 1024 });
});
beforeEach(() => w.forgetNodes());
afterEach(() => w.cutNodes());

const large = () => {
  const content = new Uint8Array(KILOBYTES * 1024);
  content.set(png(64, 48));
  return form({ content, filename: "a.png" });
};
const ask = (query: string, body: FormData | string) =>
  w.admin.send("POST", `/predict/image${query}`, body);
const NO_MODEL = [409, "state_conflict"];

it("is refused for its model first, and then for itself", async () => {
  await w.opened();
  const wrong = [form({ content: text() }), form(["file", "no file"])];
  for (const body of wrong) {
    expect(await refusal(await ask("?alias=staging", body))).toEqual(NO_MODEL);
  }
  expect(await refusal(await ask("?mask=rle", form({ content: png() })))).toEqual([
    422,
    "invalid_request",
  ]);
  expect(await refusal(await ask("", form({ content: text() })))).toEqual([
    415,
    "unsupported_media",
  ]);
  expect(await refusal(await ask("", form(["other", "no file"])))).toEqual([
    422,
    "invalid_request",
  ]);
});

it("leaves no memory taken, however many were refused", async () => {
  const node = await w.opened();
  for (let index = 0; index < REQUESTS; index++) {
    expect(await refusal(await ask("?alias=staging", large()))).toEqual(NO_MODEL);
  }
  expect(node.asked).toEqual([]);
  const answer = await ask("", large());
  expect([answer.status, await answer.json()]).toEqual([200, FOUND.predictions]);
});

it("is found in forms that are written in other ways than most are", async () => {
  await w.opened();
  const image = { content: png(64, 48), filename: "ä.png" };
  const forms = [form(image), form(["note", "before"], image), form(image, ["note", "behind"])];
  for (const body of forms) {
    const answer = await ask("", body);
    expect([answer.status, await answer.json()]).toEqual([200, FOUND.predictions]);
  }
  expect(await refusal(await ask("", form(image, image)))).toEqual([422, "invalid_request"]);
});
