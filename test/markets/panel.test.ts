// Panels: several series side by side at one knowledge time, in workerd.

import { beforeAll, describe, expect, it } from "vitest";
import { compact } from "../../edge/markets/store/compact.ts";
import { PanelRecord, SeriesRecord } from "../../shared/wire/markets.ts";
import { openDuck, readArrow } from "../support/formats.ts";
import { marketsReader } from "../support/markets-reader.ts";
import { commitHours, createWorld, DAY, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 10);
const at = (hour: number) => new Date(FROM + hour * HOUR).toISOString();
const ERCO = "library=power.demand&symbol=erco";

let world: World;
/** Knowledge times of erco's vintages. */
let known: string[];
beforeAll(async () => {
  world = await createWorld({ services: ["markets", "console"] });
  const commits: [number[], boolean, number?][] = [
    [[10, 11, 12], true],
    [[10, 21, 12, 13], false],
    // The third hour is withdrawn, the second comes back to what it was.
    [[10, 11], false, 4],
  ];
  known = [];
  for (const [values, reconstructed, length] of commits) {
    const covered = { from: FROM, to: FROM + (length ?? values.length) * HOUR };
    const vintage = await commitHours(world, "erco", FROM, values, { covered, reconstructed });
    known.push(new Date(vintage?.asOf ?? 0).toISOString());
  }
  await commitHours(world, "pjm", FROM + HOUR, [100, null]);
});

const { get, read, refusal } = marketsReader(() => world);

describe("a panel", () => {
  it("aligns series at one knowledge time, with the zone's clock", async () => {
    const rows = await read(
      PanelRecord.array(),
      "/panel?library=power.demand&symbols=erco,power.demand/pjm&time_zone=America/Chicago",
    );
    const [erco, pjm] = ["power.demand.erco", "power.demand.pjm"];
    expect(rows).toEqual([
      { Datetime: at(0), local: "2026-01-09T18:00:00-06:00", [erco]: 10, [pjm]: null },
      { Datetime: at(1), local: "2026-01-09T19:00:00-06:00", [erco]: 11, [pjm]: 100 },
      { Datetime: at(2), local: "2026-01-09T20:00:00-06:00", [erco]: null, [pjm]: null },
    ]);
    const early = await read(
      PanelRecord.array(),
      `/panel?library=power.demand&symbols=erco,pjm&as_of=${known[0]}`,
    );
    expect(early.map((row) => row[erco])).toEqual([10, 11, 12]);
    const csv = await (await get("/panel?library=power.demand&symbols=erco,pjm&format=csv")).text();
    expect(csv.split("\n").slice(0, 3)).toEqual([
      `Datetime,${erco},${pjm}`,
      `${at(0)},10,`,
      `${at(1)},11,100`,
    ]);
  });

  it("keeps two series apart that have one instrument_id", async () => {
    for (const [symbol, value] of [
      ["east", 1],
      ["west", 2],
    ] as const) {
      await commitHours(world, symbol, FROM, [], {
        rows: ["shared", symbol].map((instrumentId) => ({
          datetime: FROM,
          instrumentId,
          values: [value],
        })),
        covered: { from: FROM, to: FROM + HOUR },
      });
    }
    const ask = (symbols: string) =>
      read(PanelRecord.array(), `/panel?library=power.demand&symbols=${symbols}`);
    expect(await ask("east,west,power.demand/east")).toEqual([
      {
        Datetime: at(0),
        east: 1,
        "power.demand/east/shared": 1,
        "power.demand/west/shared": 2,
        west: 2,
      },
    ]);
    expect(await ask("west")).toEqual([{ Datetime: at(0), shared: 2, west: 2 }]);
  });

  it("is the same in every format", async () => {
    const duck = await openDuck();
    for (const more of [
      "",
      "&time_zone=America/Chicago",
      `&as_of=${known[1]}`,
      "&end=2000-01-01",
    ]) {
      const path = `/panel?library=power.demand&symbols=erco,pjm${more}`;
      const rows = await read(PanelRecord.array(), path);
      const bytes = async (format: string) => {
        const response = await get(`${path}&format=${format}`);
        expect(response.status).toBe(200);
        return new Uint8Array(await response.arrayBuffer());
      };
      expect((await duck.parquet(await bytes("parquet"))).rows).toEqual(rows);
      expect(readArrow(await bytes("arrow")).rows).toEqual(rows);
    }
    duck.close();
  });

  it("leaves out what backfills wrote, or what came too late for a row, as a series does", async () => {
    const late = Math.ceil((Date.parse(known[0] ?? "") - FROM) / 1_000);
    for (const more of ["&vintage=true_only", `&as_of_offset=PT${late - 3_600}S`]) {
      const rows = await read(SeriesRecord.array(), `/series?${ERCO}${more}`);
      expect(rows.length).toBeLessThan(3);
      const panel = await read(
        PanelRecord.array(),
        `/panel?library=power.demand&symbols=erco${more}`,
      );
      expect(panel).toEqual(
        rows.map(({ Datetime, value }) => ({ Datetime, "power.demand.erco": value })),
      );
    }
    expect(await refusal("/panel?library=power.demand&symbols=erco&as_of_offset=soon")).toEqual([
      422,
      "invalid_request",
      expect.stringContaining("as_of_offset: must be an ISO 8601 duration"),
    ]);
  });

  it("tells the repeated hour of a DST day apart", async () => {
    const from = Date.UTC(2026, 10, 1, 5);
    await commitHours(world, "dst", from, [1, 2, 3, 4]);
    const path = "/panel?library=power.demand&symbols=dst&time_zone=America/Chicago";
    const rows = await read(PanelRecord.array(), path);
    expect(rows.map((row) => row.local)).toEqual([
      "2026-11-01T00:00:00-05:00",
      "2026-11-01T01:00:00-05:00",
      "2026-11-01T01:00:00-06:00",
      "2026-11-01T02:00:00-06:00",
    ]);
  });
});

describe("a panel's life in caches", () => {
  const CONTROL = "Cache-Control";

  it("ends with the next commit where the address names no time", async () => {
    const vintage = await commitHours(world, "newest", FROM, [1]);
    const path = "/panel?library=power.demand&symbols=newest";
    expect((await get(path)).headers.get(CONTROL)).toMatch(/max-age=0/);
    const pinned = `${path}&as_of=${new Date(vintage?.asOf ?? 0).toISOString()}`;
    expect((await get(pinned)).headers.get(CONTROL)).toMatch(/immutable/);
  });

  it("shows no instrument before it has a row, whatever compaction put beside it", async () => {
    const [sun, battery] = ["power.fuel.sun", "power.fuel.battery"];
    const learn = (ids: readonly string[]) =>
      commitHours(world, "fuel", FROM, [], {
        rows: ids.map((instrumentId, hour) => ({
          datetime: FROM + hour * HOUR,
          instrumentId,
          values: [hour],
        })),
        covered: { from: FROM, to: FROM + DAY },
      });
    const first = await learn([sun]);
    await learn([sun, battery]);
    const asOf = new Date(first?.asOf ?? 0).toISOString();
    const answers = async () => {
      const texts: string[] = [];
      for (const query of [`as_of=${asOf}`, `as_of=2100-01-01&end=${at(0)}`]) {
        const json = await get(`/panel?library=power.demand&symbols=fuel&${query}`);
        const parquet = await get(
          `/series?library=power.demand&symbol=fuel&format=parquet&${query}`,
        );
        texts.push(await json.text(), new TextDecoder("latin1").decode(await parquet.bytes()));
      }
      return texts;
    };
    const before = await answers();
    expect(before[0]).toBe(`[{"Datetime":"${at(0)}","${sun}":0}]`);
    await compact(world.writer, { library: "power.demand", symbol: "fuel" });
    const after = await answers();
    expect([after[0], after[2]]).toEqual([before[0], before[0]]);
    expect(after.filter((text) => text.includes(battery))).toEqual([]);
    expect(after.filter((text) => text.includes(sun))).toHaveLength(4);
  });
});
