// Images that devices send along. Goal: each lands once as an unlabeled frame of the device's
// project, one that looks the same not at all, and a try that broke off is taken up again.

import { createHash } from "node:crypto";
import { sql } from "drizzle-orm";
import sharp from "sharp";
import { beforeAll, describe, expect, it } from "vitest";
import { createLog } from "../../../edge/http/log.ts";
import { differenceHash } from "../../../edge/infer/difference-hash.ts";
import { DEVICE_IMAGES_DAILY_MAX, hashOf } from "../../../edge/vision/fleet/devices/images.ts";
import { HELD_BYTES_MAX } from "../../../edge/vision/serving/predict/held-bytes.ts";
import type { DeviceImage } from "../../../shared/wire/fleet.ts";
import type { Video } from "../../../shared/wire/vision.ts";
import { createFleetWorld, type FleetWorld, type TestDevice } from "../../support/fleet-world.ts";
import { form } from "../../support/media.ts";
import { newProject } from "../../support/scripted-node.ts";

let w: FleetWorld;
beforeAll(async () => {
  w = await createFleetWorld({ services: ["vision", "infer"] });
});

/** A scene of large shapes, by its number; at a size and quality of its own. */
async function scene(number: number, { width = 640, quality = 90 } = {}) {
  const shapes = Array.from({ length: 6 }, (_, index) => {
    const roll = (salt: number) => Math.abs(Math.sin(number * 97 + index * 13 + salt));
    return `<rect x="${roll(1) * 500}" y="${roll(2) * 350}" width="${80 + roll(3) * 250}"
      height="${60 + roll(4) * 200}" fill="hsl(${roll(5) * 360} 80% ${roll(6) * 100}%)"/>`;
  });
  const svg = `<svg width="640" height="480"><rect width="640" height="480" fill="#777"/>${shapes.join("")}</svg>`;
  const file = await sharp(Buffer.from(svg)).resize(width).jpeg({ quality }).toBuffer();
  return Uint8Array.from(file);
}
const send = (device: TestDevice, seq: number, content: Uint8Array<ArrayBuffer>, boot = "a") =>
  device.api.ok<DeviceImage>(
    "POST",
    `${device.own("images")}?boot_id=${boot}&seq=${seq}`,
    form({ content, filename: "a.jpg" }),
  );
const videos = (projectId: string) => w.admin.ok<Video[]>("GET", `/projects/${projectId}/videos`);
const withProject = async () => {
  const { project_id } = await newProject(w.admin);
  return { project_id, device: await w.enrolled({ project_id }) };
};

describe("an image of a device", () => {
  it("becomes an unlabeled frame of its project", async () => {
    const { project_id, device } = await withProject();
    const { video_id, duplicate } = await send(device, 1, await scene(1));
    expect(duplicate).toBe(false);
    const [video, ...others] = await videos(project_id);
    expect(others).toEqual([]);
    expect(video).toMatchObject({ video_id, source: "image", content_type: "image/jpeg" });
    expect(await w.world.media.get(`ws/${w.workspaceId}/videos/${video_id}/source`)).not.toBeNull();
  });

  it("of the same line again is the same, and one that looks the same is not stored", async () => {
    const { project_id, device } = await withProject();
    const first = await send(device, 1, await scene(2));
    expect(await send(device, 1, await scene(2))).toEqual(first);
    const smaller = await send(device, 2, await scene(2, { width: 320, quality: 60 }));
    expect(smaller).toEqual({ video_id: first.video_id, duplicate: true });
    const other = await send(device, 3, await scene(3));
    expect(other.duplicate).toBe(false);
    expect(await videos(project_id)).toHaveLength(2);
    const colleague = await w.enrolled({ project_id });
    expect((await send(colleague, 1, await scene(3))).duplicate).toBe(true);
  });

  it("of one line, sent several times at once, lands once", async () => {
    const { project_id, device } = await withProject();
    const image = await scene(4);
    const answers = await Promise.all([1, 2, 3, 4].map(() => send(device, 9, image)));
    expect(new Set(answers.map(({ video_id }) => video_id)).size).toBe(1);
    expect(await videos(project_id)).toHaveLength(1);
  });

  it("whose landing broke off lands as it comes again", async () => {
    const { project_id, device } = await withProject();
    const [image, video_id] = [await scene(5), crypto.randomUUID()];
    await w.world.visionDatabase.execute(sql`
      INSERT INTO device_image (id, workspace_id, device_id, project_id, video_id, boot_id, seq, sha256)
      VALUES (gen_random_uuid(), ${w.workspaceId}::uuid, ${device.id}::uuid, ${project_id}::uuid,
        ${video_id}::uuid, 'a', 1, '\\x00')`);
    expect(await send(device, 1, image)).toEqual({ video_id, duplicate: false });
    expect((await videos(project_id)).map((one) => one.video_id)).toEqual([video_id]);
  });

  it("is no duplicate of one whose landing broke off", async () => {
    const { project_id, device } = await withProject();
    const image = await scene(7);
    const sha256 = createHash("sha256").update(image).digest("hex");
    await w.world.visionDatabase.execute(sql`
      INSERT INTO device_image (id, workspace_id, device_id, project_id, video_id, boot_id, seq, sha256)
      VALUES (gen_random_uuid(), ${w.workspaceId}::uuid, ${device.id}::uuid, ${project_id}::uuid,
        gen_random_uuid(), 'a', 1, decode(${sha256}, 'hex'))`);
    const sent = await send(device, 2, image);
    expect(sent.duplicate).toBe(false);
    expect((await videos(project_id)).map(({ video_id }) => video_id)).toEqual([sent.video_id]);
  });

  it("that looks like one that was deleted is stored, and so is that one as it comes again", async () => {
    const { project_id, device } = await withProject();
    const image = await scene(9);
    const forget = async ({ video_id }: DeviceImage) =>
      void (await w.admin.ok("DELETE", `/videos/${video_id}`));
    const first = await send(device, 1, image);
    await forget(first);
    const alike = await send(device, 2, image);
    expect(alike.duplicate).toBe(false);
    expect((await videos(project_id)).map(({ video_id }) => video_id)).toEqual([alike.video_id]);
    expect(await send(device, 1, image)).toEqual({ video_id: alike.video_id, duplicate: true });
    await forget(alike);
    const again = await send(device, 2, image);
    expect(again.duplicate).toBe(false);
    expect((await videos(project_id)).map(({ video_id }) => video_id)).toEqual([again.video_id]);
  });

  it("is refused where so many of the device's were stored within a day", async () => {
    const { project_id, device } = await withProject();
    const first = await send(device, 1, await scene(10));
    await w.world.visionDatabase.execute(sql`
      INSERT INTO device_image (id, workspace_id, device_id, project_id, video_id, boot_id, seq,
        sha256, created_at)
      SELECT gen_random_uuid(), ${w.workspaceId}::uuid, ${device.id}::uuid, ${project_id}::uuid,
        gen_random_uuid(), 'b', n, '\\x00', now() - interval '23 hours'
        FROM generate_series(2, ${DEVICE_IMAGES_DAILY_MAX}::int) n`);
    const path = `${device.own("images")}?boot_id=a&seq=2`;
    const [like, other] = [await scene(10, { width: 320 }), await scene(11)];
    const refused = () => device.api.refused("POST", path, form({ content: other }));
    expect(await refused()).toEqual([413, "quota_exceeded"]);
    // What takes no room is answered: the same line, and what looks the same.
    expect(await send(device, 1, await scene(10))).toEqual(first);
    expect((await send(device, 3, like)).duplicate).toBe(true);
    const colleague = await w.enrolled({ project_id });
    expect((await send(colleague, 1, other)).duplicate).toBe(false);
    expect(await videos(project_id)).toHaveLength(2);
    await w.world.visionDatabase.execute(sql`
      UPDATE device_image SET created_at = created_at - interval '2 hours'
       WHERE device_id = ${device.id}::uuid AND boot_id = 'b'`);
    expect((await send(device, 2, await scene(12))).duplicate).toBe(false);
  });

  it("gives back the memory that it took, whether it landed or was a duplicate", async () => {
    const { project_id, device } = await withProject();
    // More than an isolate holds at once, copies included.
    const bytes = 8 * 1024 * 1024 - 1_024;
    const count = Math.ceil(HELD_BYTES_MAX / (2 * bytes)) + 1;
    const head = await scene(8);
    for (let seq = 1; seq <= count; seq++) {
      const content = new Uint8Array(bytes);
      content.set(head);
      content[bytes - 1] = seq % 2;
      expect((await send(device, seq, content)).duplicate).toBe(seq > 1);
    }
    expect(await videos(project_id)).toHaveLength(1);
  });

  it("that cannot be taken is refused, and leaves nothing behind", async () => {
    const { project_id, device } = await withProject();
    const path = `${device.own("images")}?boot_id=a&seq=1`;
    const words = new TextEncoder().encode("no image at all, only words in a row");
    const refused = (body: unknown, to = path) => device.api.refused("POST", to, body);
    expect(await refused(form({ content: words }))).toEqual([415, "unsupported_media"]);
    const large = new Uint8Array(9 * 1024 * 1024);
    large.set(await scene(6));
    expect(await refused(form({ content: large }))).toEqual([413, "file_too_large"]);
    expect(await refused({ file: "none" })).toEqual([400, "bad_body"]);
    expect(await refused(new FormData())).toEqual([422, "invalid_request"]);
    const nameless = `${device.own("images")}?boot_id=a%20b&seq=0`;
    expect(await refused(form({ content: await scene(6) }), nameless)).toEqual([
      422,
      "invalid_request",
    ]);
    const homeless = await w.enrolled();
    const answer = homeless.api.refused(
      "POST",
      `${homeless.own("images")}?boot_id=a&seq=1`,
      form({ content: await scene(6) }),
    );
    expect(await answer).toEqual([409, "state_conflict"]);
    expect(await videos(project_id)).toEqual([]);
  });

  it("is told apart by its bytes alone where the edge does not read it", async () => {
    const { device } = await withProject();
    // Larger than the edge decodes.
    const huge = async (number: number) =>
      Uint8Array.from(
        await sharp({
          create: {
            width: 2_000,
            height: 1_500,
            channels: 3,
            background: { r: number, g: 0, b: 0 },
          },
        })
          .jpeg()
          .toBuffer(),
      );
    const first = await send(device, 1, await huge(1));
    expect((await send(device, 2, await huge(1))).video_id).toBe(first.video_id);
    expect((await send(device, 3, await huge(200))).duplicate).toBe(false);
  });
});

describe("what compares images", () => {
  const told = (answer: Response) =>
    hashOf(
      // The platform types its own Response, which has more than is read here.
      { hasher: { fetch: async () => answer as never }, log: createLog("test") },
      new Uint8Array([1]),
    );

  it("has no room: the image comes again, instead of being like none for good", async () => {
    const full = told(Response.json({ code: "overloaded" }, { status: 429 }));
    await expect(full).rejects.toMatchObject({ code: "overloaded" });
  });

  it("does not read it: it has no hash", async () => {
    expect(await told(Response.json({ code: "unsupported_media" }, { status: 415 }))).toBeNull();
  });
});

describe("the difference hash", () => {
  /** Nine by eight pixels, each as bright as its column and row say. */
  const drawn = (brightness: (x: number, y: number) => number) =>
    differenceHash(
      Uint8Array.from({ length: 9 * 8 * 3 }, (_, index) => {
        const pixel = Math.floor(index / 3);
        return brightness(pixel % 9, Math.floor(pixel / 9));
      }),
    );

  it("has a bit for each pixel that is darker than its right neighbour, row by row", () => {
    expect(drawn((x) => x * 20)).toBe("ffffffffffffffff");
    expect(drawn((x) => 200 - x * 20)).toBe("0000000000000000");
    expect(drawn(() => 100)).toBe("0000000000000000");
    expect(drawn((x) => (x % 2) * 200)).toBe("aaaaaaaaaaaaaaaa");
    expect(drawn((x, y) => (y === 0 ? x * 20 : 0))).toBe("ff00000000000000");
    expect(drawn((x, y) => (y === 7 && x === 8 ? 200 : 0))).toBe("0000000000000001");
  });
});
