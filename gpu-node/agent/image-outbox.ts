// Images of uncertain predictions, on the disk until the service has them: at most one in so many
// seconds and so many bytes in all, of which the oldest go. What looks the same as another is for
// the service to tell.

import * as fs from "node:fs";
import { join } from "node:path";
import { DEVICE_IMAGE_BYTES_MAX } from "../../shared/wire/fleet.ts";
import { isDiskFull } from "../base/failure.ts";
import type { Log } from "../base/log.ts";
import type { RgbImage } from "../media/image.ts";
import { toJpeg } from "../media/stills.ts";
import { type DeviceService, ServiceRefusal } from "./device-service.ts";

/** Which images are sent along, and how many. */
export interface OutboxRules {
  /** An image is uncertain that shows an object of such a confidence; null: none is. */
  uncertain: { from: number; below: number } | null;
  secondsApart: number;
  bytesMax: number;
}

/** Which line of the log an image is of. */
export interface ImageLine {
  bootId: string;
  seq: number;
}

/**
 * Where the workspace is full, somebody makes room, and where a day's images of the device are
 * stored, the day ends; other refusals are about the image.
 */
const FULL = "quota_exceeded";
/** Statuses that are about the image, or about all images: it is not asked for again. */
const REFUSED = [400, 409, 413, 415, 422];
const NAME = /^(\d{15})\.([\w-]{1,64})\.(\d{1,16})\.jpg$/;

/** Images that wait for the service. */
export class ImageOutbox {
  readonly #dir: string;
  readonly #rules: OutboxRules;
  readonly #log: Log;
  /** When the next one may be kept, by the monotonic clock. */
  #nextAt = Number.NEGATIVE_INFINITY;

  constructor(dir: string, rules: OutboxRules, log: Log) {
    this.#dir = dir;
    this.#rules = rules;
    this.#log = log;
    fs.mkdirSync(dir, { recursive: true, mode: 0o700 });
  }

  /** Keeps an image where what was seen on it is uncertain, and it is not too soon. */
  async offer(
    line: ImageLine,
    image: RgbImage,
    objects: readonly { confidence: number }[],
  ): Promise<void> {
    const { uncertain, secondsApart } = this.#rules;
    if (!uncertain || performance.now() < this.#nextAt) return;
    const { from, below } = uncertain;
    if (!objects.some(({ confidence }) => confidence >= from && confidence < below)) return;
    const bytes = await toJpeg(image);
    if (bytes.length > DEVICE_IMAGE_BYTES_MAX) return;
    this.#nextAt = performance.now() + secondsApart * 1_000;
    this.#keep(line, bytes);
  }

  #keep({ bootId, seq }: ImageLine, bytes: Buffer) {
    const names = this.#names();
    const last = Number(NAME.exec(names.at(-1) ?? "")?.[1] ?? 0);
    const name = `${String(last + 1).padStart(15, "0")}.${bootId}.${seq}.jpg`;
    const sizes = names.map((one) => fs.statSync(join(this.#dir, one)).size);
    let held = sizes.reduce((sum, size) => sum + size, 0);
    for (const [index, oldest] of names.entries()) {
      if (held + bytes.length <= this.#rules.bytesMax) break;
      this.#remove(oldest);
      held -= sizes[index] ?? 0;
    }
    if (held + bytes.length > this.#rules.bytesMax) return;
    const path = join(this.#dir, name);
    try {
      fs.writeFileSync(`${path}.new`, bytes, { mode: 0o600 });
      fs.renameSync(`${path}.new`, path);
    } catch (thrown) {
      fs.rmSync(`${path}.new`, { force: true });
      if (!isDiskFull(thrown)) throw thrown;
    }
  }

  /** Names of what waits, the oldest first. */
  #names(): string[] {
    return fs
      .readdirSync(this.#dir)
      .filter((name) => NAME.test(name))
      .sort();
  }

  #remove(name: string) {
    fs.rmSync(join(this.#dir, name), { force: true });
  }

  /**
   * Sends what waits, the oldest first, at least one, and begins no further one once it is `until`
   * by the monotonic clock: so a log that never ends keeps no image here. What is refused for good
   * is let go of. Fails with ServiceAway, and with a ServiceRefusal that is not about images.
   */
  async send(
    service: Pick<DeviceService, "sendImage">,
    until: number,
    signal: AbortSignal,
  ): Promise<void> {
    for (const name of this.#names()) {
      const [, , bootId = "", seq] = NAME.exec(name) ?? [];
      const path = join(this.#dir, name);
      // A newer one may have taken its room while another was sent.
      if (!fs.existsSync(path)) continue;
      try {
        const bytes = fs.readFileSync(path);
        await service.sendImage({ bootId, seq: Number(seq) }, bytes, signal);
      } catch (thrown) {
        if (!(thrown instanceof ServiceRefusal) || !REFUSED.includes(thrown.status)) throw thrown;
        if (thrown.code === FULL) return;
        this.#log.warning("image_refused", { reason: thrown.message });
      }
      this.#remove(name);
      if (performance.now() >= until) return;
    }
  }
}
