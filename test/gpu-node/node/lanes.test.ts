// Which slot of a node takes which task. Goal: work that somebody waits for never stands behind a
// long task, training is alone, and only kinds that share a process go beside each other.

import { describe, expect, it } from "vitest";
import {
  claimableKinds,
  claimWaitSeconds,
  hasRoom,
  isPausable,
  rolesOf,
  type SlotLoad,
  slotFor,
} from "../../../gpu-node/node/lanes.ts";
import { TASK_KIND_NAMES, TASK_KINDS } from "../../../shared/tasks/tasks.ts";

const general = (...kinds: string[]): SlotLoad => ({ role: "general", kinds });
const interactive = (...kinds: string[]): SlotLoad => ({ role: "interactive", kinds });
const serving = (...kinds: string[]): SlotLoad => ({ role: "serving", kinds });
const short = (...kinds: string[]): SlotLoad => ({ role: "short", kinds });
const build = (...kinds: string[]): SlotLoad => ({ role: "build", kinds });
const training = (...kinds: string[]): SlotLoad => ({ role: "training", kinds });
const many = (count: number) => Array.from({ length: count }, () => "predict");

describe("a node's slots", () => {
  it("are as many as configured, one for each lane that must not wait, one for training", () => {
    const own = ["interactive", "serving", "short", "build", "training"];
    expect(rolesOf(2, TASK_KIND_NAMES)).toEqual(["general", "general", ...own]);
    expect(rolesOf(1, ["probe", "label", "export"])).toEqual(["general", "short"]);
    // Where nothing else takes the general slots, they are what was configured.
    expect(rolesOf(1, ["probe", "export"])).toEqual(["general"]);
    // A second engine may have the general slot: probes have one of their own all the same.
    const three = ["general", "short", "build"];
    expect(rolesOf(1, ["probe", "engine_export"])).toEqual(three);
    expect(rolesOf(1, ["engine_export", "device_export"])).toEqual(["general"]);
    expect(rolesOf(1, ["probe", "train"])).toEqual(["general", "training"]);
    expect(rolesOf(1, ["predict"])).toEqual(["general", "serving"]);
    expect(rolesOf(1, [])).toEqual(["general"]);
  });
});

describe("a slot", () => {
  it("takes kinds of its lane alone while it is empty", () => {
    for (const kind of TASK_KIND_NAMES) {
      const { lane, shared } = TASK_KINDS[kind];
      expect(hasRoom(general(), kind)).toBe(lane !== "training");
      expect(hasRoom(interactive(), kind)).toBe(lane === "interactive" && !shared);
      expect(hasRoom(serving(), kind)).toBe(shared);
      expect(hasRoom(short(), kind)).toBe(lane === "short");
      expect(hasRoom(build(), kind)).toBe(lane === "build");
      expect(hasRoom(training(), kind)).toBe(lane === "training");
      expect(isPausable(kind)).toBe(kind === "train");
    }
  });

  it("takes a kind that this build does not know as batch work", () => {
    expect(hasRoom(general(), "new")).toBe(true);
    expect(hasRoom(interactive(), "new")).toBe(false);
    expect(hasRoom(serving(), "new")).toBe(false);
    expect(hasRoom(short(), "new")).toBe(false);
    expect(hasRoom(build(), "new")).toBe(false);
    expect(hasRoom(training(), "new")).toBe(false);
  });

  it("takes nothing more while it works, unless it is the one that serves", () => {
    for (const kind of TASK_KIND_NAMES) {
      expect(hasRoom(general("label"), kind)).toBe(false);
      expect(hasRoom(general("predict"), kind)).toBe(false);
      expect(hasRoom(interactive("segment"), kind)).toBe(false);
      expect(hasRoom(short("probe"), kind)).toBe(false);
      expect(hasRoom(build("device_export"), kind)).toBe(false);
      expect(hasRoom(training("train"), kind)).toBe(false);
    }
  });

  it("has predictions beside each other, sixteen at most, where no segmenter holds them up", () => {
    expect(hasRoom(serving(...many(15)), "predict")).toBe(true);
    expect(hasRoom(serving(...many(15)), "warm")).toBe(true);
    expect(hasRoom(serving(...many(16)), "predict")).toBe(false);
    expect(hasRoom(serving(), "preview")).toBe(false);
    expect(hasRoom(interactive(), "predict")).toBe(false);
  });
});

describe("a claim", () => {
  it("asks for the kinds for which there is room", () => {
    const busy = [general("label"), interactive("segment"), serving("predict"), training("train")];
    expect(claimableKinds(busy, TASK_KIND_NAMES)).toEqual(["warm", "predict", "comparison"]);
    // A long job has the general slot: what people wait for is claimed all the same.
    const long = [general("label"), interactive(), serving(), short(), training("train")];
    expect(claimableKinds(long, TASK_KIND_NAMES)).toEqual(
      TASK_KIND_NAMES.filter((kind) => !/^(batch|build|training)$/.test(TASK_KINDS[kind].lane)),
    );
    // An engine is built for half an hour: uploads are probed and datasets exported meanwhile.
    const building = [general("label"), short(), build("engine_export")];
    const claimed = claimableKinds(building, ["probe", "export", "device_export"]);
    expect(claimed).toEqual(["probe", "export"]);
    expect(claimableKinds([general(), ...busy], ["probe", "train"])).toEqual(["probe"]);
    expect(claimableKinds([general()], [])).toEqual([]);
  });

  it("waits at the service only without a socket, and shortly while general slots work", () => {
    expect(claimWaitSeconds([general()], { socketOpen: true })).toBe(0);
    expect(claimWaitSeconds([general("label"), general()], { socketOpen: false })).toBe(10);
    expect(claimWaitSeconds([general("label"), interactive()], { socketOpen: false })).toBe(1);
  });
});

describe("a claimed task", () => {
  it("goes to its lane's own slot, else to the first with room", () => {
    const slots = [general("label"), general(), interactive(), training(), short()];
    expect(slotFor(slots, "segment")).toBe(slots[2]);
    expect(slotFor([...slots, serving("predict")], "predict")).toMatchObject({ role: "serving" });
    expect(slotFor(slots, "probe")).toBe(slots[4]);
    expect(slotFor(slots.slice(0, 4), "probe")).toBe(slots[1]);
    expect(slotFor(slots, "label")).toBe(slots[1]);
    expect(slotFor(slots, "train")).toBe(slots[3]);
    expect(slotFor([...slots, build()], "device_export")).toMatchObject({ role: "build" });
    expect(slotFor([short(), build("device_export")], "engine_export")).toBeNull();
    expect(slotFor([general(), interactive("segment")], "preview")).toMatchObject({
      role: "general",
    });
    expect(slotFor([general("label")], "probe")).toBeNull();
  });
});
