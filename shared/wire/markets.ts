// Wire shapes of the markets service: the read API's records and the operator API's resources.

import { z } from "zod";

/** A named shape or null. `.nullable()` would have descriptions name the shape with its null. */
const orNull = <Shape extends z.ZodType>(shape: Shape) => z.union([shape, z.null()]);

/** An instant on the wire, ISO 8601. */
export const instant = z
  .string()
  .meta({ format: "date-time", example: "2026-01-31T05:00:00.000Z" });

/** One row of `GET /series`. Value columns beyond `value` depend on the library. */
export const SeriesRecord = z
  .looseObject({
    Datetime: instant.meta({ description: "valid time: the interval's start, UTC" }),
    instrument_id: z
      .string()
      .meta({ description: "what the value is of", example: "power.demand.erco" }),
    value: z.number().nullable().optional().meta({ description: "NaN is null", example: 41234 }),
    as_of: instant.meta({ description: "knowledge time of this row: when its vintage committed" }),
    vintage_reconstructed: z.boolean().meta({
      description: "true: written by a backfill; false: a true forward vintage",
    }),
    known_from: instant.optional().meta({ description: "includeHistory: when it became known" }),
    known_to: instant.nullable().optional().meta({
      description: "includeHistory: when another version or a retraction ended it; null: it holds",
    }),
    store_version: z.int().optional().meta({ description: "provenance=full: its vintage" }),
    source_url: z.string().nullable().optional().meta({ description: "provenance=full" }),
    source_published_at: instant.nullable().optional().meta({
      description: "provenance=full: when the provider published it, where it says so",
    }),
    run_id: z.string().nullable().optional().meta({ description: "provenance=full" }),
  })
  .meta({ id: "SeriesRecord" });
export type SeriesRecord = z.infer<typeof SeriesRecord>;

/** One point of `GET /curve`. */
export const CurveRecord = z
  .object({
    commodity: z.string().meta({ description: "as it was asked for", example: "natural_gas" }),
    trade_date: z.string().meta({
      description:
        "futures: the trade date; day_ahead: the operating day; agency_forecast: the UTC day on " +
        "which its newest vintage was learned",
      example: "2026-01-30",
    }),
    tenor: z.int().positive().meta({
      description: "n-th contract or month; day_ahead: n-th hour of the operating day, up to 25",
      example: 1,
    }),
    contract_month: z.string().nullable().meta({
      description: "delivery month; null for day_ahead",
      example: "2026-03",
    }),
    Datetime: instant.meta({
      description: "when delivery begins: the month's or the hour's start",
    }),
    price: z.number().nullable().meta({ description: "NaN is null", example: 3.42 }),
    unit: z.enum(["$/MMBtu", "$/bbl", "$/gal", "$/MWh"]).meta({ description: "of the price" }),
    curve_source: z
      .enum(["futures", "agency_forecast", "day_ahead"])
      .meta({ description: "origin of the prices" }),
    instrument_id: z
      .string()
      .meta({ description: "series that the price is of", example: "prices.spot.rngc1" }),
    as_of: instant.meta({
      description: "knowledge time of this price: when its vintage committed",
    }),
    vintage_reconstructed: z.boolean().meta({
      description: "true: written by a backfill; false: a true forward vintage",
    }),
  })
  .meta({ id: "CurveRecord" });
export type CurveRecord = z.infer<typeof CurveRecord>;

/** One commit to a series. */
export const Vintage = z
  .object({
    store_version: z.int().meta({ description: "1, 2, 3 … without gaps" }),
    as_of: instant.meta({ description: "knowledge time: when it was committed" }),
    vintage_reconstructed: z.boolean().meta({ description: "true: written by a backfill" }),
    inserted: z.int().meta({ description: "rows that were new" }),
    revised: z.int().meta({ description: "rows whose values changed" }),
    retracted: z.int().meta({ description: "rows that the source no longer gave" }),
    rows: z.int().meta({ description: "rows of the whole series at this vintage" }),
    first_datetime: instant.meta({ description: "earliest valid time it changed" }),
    last_datetime: instant.meta({ description: "latest valid time it changed" }),
    covered_from: instant.meta({ description: "the source was asked from here" }),
    covered_to: instant.meta({ description: "to here, exclusive" }),
    partition: z.string().meta({ description: "slice of the pipeline that was fetched" }),
    run_id: z.string().meta({ description: "run that committed it" }),
    source_url: z
      .string()
      .meta({ description: "where it was fetched; sandbox:// marks sandbox data" }),
    source_published_at: instant
      .nullable()
      .meta({ description: "when the provider published it, where it says so" }),
    content_sha256: z.string().meta({ description: "of its changes in canonical form" }),
  })
  .meta({ id: "Vintage" });
export type Vintage = z.infer<typeof Vintage>;

/** One commit of the change feed. */
export const Change = z
  .object({
    library: z.string().meta({ description: "of the series" }),
    symbol: z.string().meta({ description: "of the series" }),
    sandbox: z.boolean().meta({ description: "true: sandbox data, no market's" }),
    ...Vintage.shape,
  })
  .meta({ id: "Change" });
export type Change = z.infer<typeof Change>;

/** A page of the change feed; `next` is the `since` of the one after it. */
export const ChangePage = z.object({
  changes: z.array(Change).meta({ description: "commits, oldest first" }),
  next: z.string().meta({ description: "`since` of the page after this one" }),
  more: z.boolean().meta({ description: "true: the next page may have entries now" }),
});
export type ChangePage = z.infer<typeof ChangePage>;

const RowState = z
  .looseObject({
    as_of: instant.meta({ description: "knowledge time of the row" }),
    vintage_reconstructed: z.boolean().meta({ description: "true: written by a backfill" }),
  })
  .meta({ id: "RowState", description: "the value columns with their vintage" });

/** A row that differs between two knowledge times. */
export const DiffRecord = z
  .object({
    Datetime: instant.meta({ description: "valid time" }),
    instrument_id: z.string().meta({ description: "what the values are of" }),
    change: z
      .enum(["inserted", "revised", "retracted"])
      .meta({ description: "what happened to the row" }),
    before: orNull(RowState).meta({ description: "at `from`; null: there was none" }),
    after: orNull(RowState).meta({ description: "at `to`; null: there is none" }),
  })
  .meta({ id: "DiffRecord" });
export type DiffRecord = z.infer<typeof DiffRecord>;

const Print = z
  .object({
    value: z.number().nullable().meta({ description: "NaN is null" }),
    as_of: instant.meta({ description: "when it became known" }),
    lag_seconds: z.number().meta({ description: "as_of less Datetime" }),
    vintage_reconstructed: z.boolean().meta({ description: "true: written by a backfill" }),
    retracted: z.boolean().meta({ description: "true: the row was taken back here" }),
  })
  .meta({ id: "Print" });

const Spread = z
  .object({
    rows: z.int().meta({ description: "rows that were compared" }),
    mean: z.number().nullable().meta({ description: "bias: latest less earlier, on average" }),
    sd: z.number().nullable().meta({ description: "sample standard deviation" }),
    mean_abs: z.number().nullable().meta({ description: "mean of the absolute moves" }),
    max_abs: z.number().nullable().meta({ description: "the largest absolute move" }),
  })
  .meta({ id: "Spread" });

/** The revision triangle of one value column. */
export const Revisions = z
  .object({
    column: z.string().meta({ description: "value column that was read" }),
    as_of: instant.nullable().meta({ description: "knowledge time of the read" }),
    rows: z
      .array(
        z.object({
          Datetime: instant.meta({ description: "valid time" }),
          instrument_id: z.string().meta({ description: "what the values are of" }),
          first: Print,
          latest: orNull(Print).meta({ description: "null: retracted" }),
          prints: z.array(Print).meta({ description: "every value the row had, in order" }),
          by_lag: z.record(z.string(), z.number().nullable()).meta({
            description: "by lag: the value that was known then; null: none",
          }),
        }),
      )
      .meta({ description: "every row that ever was, by Datetime and instrument_id" }),
    statistics: z
      .object({
        rows: z.int().meta({ description: "all rows" }),
        true_rows: z.int().meta({ description: "rows whose first print is a true vintage's" }),
        revised: z
          .int()
          .meta({ description: "rows whose latest value is another than their first" }),
        retracted: z.int().meta({ description: "rows that were taken back" }),
        first_to_latest: Spread,
        by_lag: z.record(z.string(), Spread).meta({ description: "from the value at each lag" }),
      })
      .meta({ description: "over all rows, how far the latest print moved" }),
  })
  .meta({ id: "Revisions" });
export type Revisions = z.infer<typeof Revisions>;

/** One instant of a panel, with a field per instrument_id. */
export const PanelRecord = z
  .object({
    Datetime: instant.meta({ description: "valid time" }),
    local: z
      .string()
      .optional()
      .meta({ description: "Datetime as the clocks of `time_zone` show it" }),
  })
  .catchall(z.number().nullable())
  .meta({ id: "PanelRecord" });
export type PanelRecord = z.infer<typeof PanelRecord>;

/** A named knowledge time. */
export const Snapshot = z
  .object({
    name: z.string().meta({ description: "what `snapshot` takes" }),
    as_of: instant.meta({ description: "the knowledge time it names" }),
    note: z.string().meta({ description: "what it is for" }),
    created_at: instant.meta({ description: "when it was named" }),
  })
  .meta({ id: "Snapshot" });
export type Snapshot = z.infer<typeof Snapshot>;

/** `GET /healthz`: whether the service lives, and what it holds. */
export const Health = z
  .object({
    status: z.enum(["ok", "degraded"]).meta({
      description:
        "degraded: the process lives, its database does not answer or lets this service write",
    }),
    detail: z.string().optional().meta({
      description: "what is wrong, where the database answers and something is",
    }),
    libraries: z
      .array(z.string())
      .meta({ description: "names of the libraries that the store holds" }),
    latest_as_of: instant.nullable().meta({
      description: "newest committed knowledge time; stale or null: nothing committed recently",
    }),
    graph: z.enum(["not_configured", "connected", "unavailable"]).meta({
      description: "state of the cached catalog-graph connection",
    }),
    sandbox: z
      .boolean()
      .meta({ description: "true: the store holds sandbox data, not a market's" }),
  })
  .meta({ id: "Health" });
export type Health = z.infer<typeof Health>;

/** What is known of an entity, and when ingest first and last saw it. */
const GraphProperties = z.looseObject({
  first_seen: instant.meta({ description: "when ingest saw it first" }),
  last_seen: instant.meta({ description: "when ingest saw it last" }),
});

const GraphNode = z.object({
  label: z.string().meta({ description: "kind of the entity", example: "BalancingAuthority" }),
  key: z.string().meta({ description: "its name among its kind", example: "erco" }),
});

/** A node of the catalog graph, in its current state. */
export const GraphEntity = GraphNode.extend({
  properties: GraphProperties.meta({ description: "what is known of it" }),
}).meta({
  id: "GraphEntity",
});
export type GraphEntity = z.infer<typeof GraphEntity>;

/** What an instrument is connected to in the catalog graph: the answer `GraphRelated`. */
export const GraphNeighbourhood = z
  .object({
    instrument_id: z
      .string()
      .meta({ description: "as it was asked for", example: "power.demand.erco" }),
    depth: z.int().meta({ description: "hops that were followed" }),
    entities: z
      .array(
        GraphEntity.extend({
          distance: z.int().meta({ description: "hops from the instrument, 1 to `depth`" }),
        }),
      )
      .meta({ description: "nearest first, then by label and key; at most 1,000" }),
    relations: z
      .array(
        z.object({
          from: GraphNode.meta({ description: "where it begins" }),
          type: z.string().meta({ description: "what it says", example: "LOCATED_AT" }),
          to: GraphNode.meta({ description: "where it ends" }),
        }),
      )
      .meta({ description: "among the instrument and the entities returned" }),
    siblings: z.array(z.string()).meta({
      description:
        "other instruments that share a place, commodity or fuel with it, sorted; at most 1,000",
    }),
    truncated: z.boolean().meta({ description: "true: entities or siblings were cut off" }),
  })
  .meta({ id: "GraphRelated" });
export type GraphNeighbourhood = z.infer<typeof GraphNeighbourhood>;

/**
 * `waiting`: its provider has not published yet, and is asked again; `late`: it did not in time.
 * `partial`: the run left series as they were that were refused or not sent.
 */
export const RunState = z.enum([
  "queued",
  "waiting",
  "running",
  "succeeded",
  "partial",
  "failed",
  "late",
  "canceled",
]);
export type RunState = z.infer<typeof RunState>;

/** What started a run. */
export const RunTrigger = z.enum(["schedule", "manual", "backfill"]);
export type RunTrigger = z.infer<typeof RunTrigger>;

/** One execution of a pipeline over one partition. */
export const Run = z
  .object({
    run_id: z.string().meta({ description: "id" }),
    job: z.string().meta({ description: "pipeline that ran", example: "grid_region" }),
    partition: z
      .string()
      .meta({ description: "slice of it that was fetched", example: "2026-01-31" }),
    trigger: RunTrigger.meta({ description: "what started it" }),
    reconstructed: z
      .boolean()
      .meta({ description: "true: its rows are flagged `vintage_reconstructed`" }),
    state: RunState.meta({ description: "how far it is" }),
    attempt: z.int().meta({ description: "tries so far" }),
    backfill_id: z.string().nullable().meta({ description: "backfill that it is part of" }),
    launched_by: z.string().nullable().meta({
      description: "name of the operator who started it, or its backfill",
    }),
    scheduled_at: instant.nullable().meta({ description: "the tick that started it" }),
    created_at: instant.meta({ description: "when it was queued" }),
    available_at: instant.nullable().meta({
      description: "a queued run begins no sooner; null: it waits for its turn in its backfill",
    }),
    started_at: instant.nullable().meta({ description: "when its first attempt began" }),
    finished_at: instant.nullable().meta({ description: "when it ended" }),
    error_code: z.string().nullable().meta({ description: "why it failed, for programs" }),
    error_detail: z.string().nullable().meta({ description: "why it failed, or is partial" }),
    metadata: z.record(z.string(), z.unknown()).nullable().meta({
      description: "rows written, instrument ids, as_of, store versions, source_url, check",
    }),
  })
  .meta({ id: "Run" });
export type Run = z.infer<typeof Run>;

/** Runs over a range of partitions, with their counts by state. */
export const Backfill = z
  .object({
    backfill_id: z.string().meta({ description: "id" }),
    job: z.string().meta({ description: "pipeline" }),
    first: z.string().meta({ description: "oldest partition" }),
    last: z.string().meta({ description: "newest partition" }),
    launched_by: z.string().nullable().meta({ description: "name of the operator" }),
    created_at: instant.meta({ description: "when it was started" }),
    canceled_at: instant.nullable().meta({ description: "when an operator canceled it" }),
    canceled_by: z.string().nullable().meta({ description: "name of the operator" }),
    runs: z
      .object({
        queued: z.int().meta({ description: "wait for their turn" }),
        waiting: z.int().meta({ description: "wait for their provider to publish" }),
        running: z.int().meta({ description: "are at work" }),
        succeeded: z.int().meta({ description: "did what they were to do" }),
        partial: z.int().meta({ description: "left some series as they were" }),
        failed: z.int().meta({ description: "did not" }),
        late: z.int().meta({ description: "gave up waiting for their provider" }),
        canceled: z.int().meta({ description: "were canceled by an operator" }),
      })
      .meta({ description: "its runs, counted by state" }),
  })
  .meta({ id: "Backfill" });
export type Backfill = z.infer<typeof Backfill>;

/** An entry of a run's journal. */
export const RunEvent = z
  .object({
    attempt: z.int().meta({ description: "try that wrote it" }),
    at: instant.meta({ description: "when" }),
    level: z.enum(["info", "warning", "error"]).meta({ description: "how bad it is" }),
    event: z.string().meta({ description: "what happened", example: "committed" }),
    detail: z.record(z.string(), z.unknown()).meta({ description: "its particulars" }),
  })
  .meta({ id: "RunEvent" });
export type RunEvent = z.infer<typeof RunEvent>;

/** A due instant of a schedule: the run it started, or why it started none. */
export const Tick = z
  .object({
    schedule: z.string().meta({ description: "schedule that was due" }),
    scheduled_at: instant.meta({ description: "when it was due" }),
    run_id: z.string().nullable().meta({ description: "run that it started" }),
    skip_reason: z.string().nullable().meta({ description: "why it started none" }),
    state: RunState.nullable().meta({ description: "of the run" }),
    partition: z.string().nullable().meta({ description: "partition of the run" }),
    reason: z.string().nullable().meta({
      description: "why its run waits, failed, came late, or found no rows",
    }),
  })
  .meta({ id: "Tick" });
export type Tick = z.infer<typeof Tick>;

/** When a pipeline runs by itself, and for which partition. */
export const Schedule = z
  .object({
    schedule: z.string().meta({ description: "name", example: "grid_region" }),
    job: z.string().meta({ description: "pipeline that it runs" }),
    cron: z.string().meta({
      description: "minute, hour, day, month, weekday, by the clocks of `time_zone`",
      example: "20 * * * *",
    }),
    time_zone: z.string().meta({ description: "IANA time zone", example: "America/New_York" }),
    aim: z.enum(["latest", "previous", "unfinished"]).meta({
      description:
        "latest: the newest partition; previous: the one before, whose last values come after its " +
        "end; unfinished: the oldest recent one that no run materialized",
    }),
    enabled: z.boolean().meta({ description: "false: switched off" }),
    next_tick: instant.nullable().meta({ description: "when it is due next" }),
    last_tick: orNull(Tick).meta({ description: "null: there was none" }),
    switched_by: z.string().nullable().meta({
      description: "the operator who last switched it on or off",
    }),
    switched_at: instant.nullable().meta({ description: "when; null: never" }),
  })
  .meta({ id: "Schedule" });
export type Schedule = z.infer<typeof Schedule>;

/** A pipeline. */
export const Job = z
  .object({
    job: z.string().meta({ description: "name" }),
    title: z.string().meta({ description: "name for people" }),
    provider: z.string().meta({ description: "who is asked" }),
    libraries: z.array(z.string()).meta({ description: "libraries that it writes" }),
    partition_unit: z
      .enum(["day", "weekday", "operating_day", "week", "month"])
      .meta({ description: "what a partition spans" }),
    first_partition: z.string().meta({ description: "oldest partition that can be fetched" }),
    latest_partition: z.string().meta({ description: "newest partition by now" }),
    schedules: z.array(Schedule).meta({ description: "none: it is run by hand" }),
  })
  .meta({ id: "Job" });
export type Job = z.infer<typeof Job>;

/** A partition and its state. */
export const PartitionState = z
  .object({
    partition: z.string().meta({ description: "key: the day it begins on" }),
    state: z
      .enum([
        "materialized",
        "partial",
        "waiting",
        "queued",
        "running",
        "failed",
        "late",
        "missing",
      ])
      .meta({ description: "partial: without some of its series; waiting: not published yet" }),
    run_id: z.string().nullable().meta({ description: "its newest run" }),
    finished_at: instant.nullable().meta({ description: "when its newest run ended" }),
    error_code: z.string().nullable().meta({ description: "why that run failed" }),
    reason: z.string().nullable().meta({
      description: "why its newest run waits, failed, came late, or found no rows",
    }),
    revised_rows: z.int().meta({ description: "rows that runs revised or retracted later" }),
  })
  .meta({ id: "PartitionState" });
export type PartitionState = z.infer<typeof PartitionState>;
