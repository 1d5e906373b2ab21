// Partitions as a grid: one cell each, by month or by year, with a sign and a colour for its state.

import type { FC } from "hono/jsx";
import type { Job, PartitionState } from "../../../shared/wire/markets.ts";
import { signOf } from "./components.tsx";
import { jobPath } from "./words.ts";

/** A partition as a link in a grid or strip. */
interface GridCell {
  partition: string;
  state: string;
  href: string;
  /** Rows that runs revised or retracted later. */
  revised?: number;
  /** Why it waits, failed or has no rows. */
  reason?: string | null;
}

const REASON_MAX = 160;

/** A partition of a pipeline: its newest run where it has one, else its place on the page. */
export const cellOf = (job: string, state: PartitionState): GridCell => ({
  partition: state.partition,
  state: state.state,
  revised: state.revised_rows,
  reason: state.reason,
  href: state.run_id
    ? `/runs/${state.run_id}`
    : `${jobPath(job)}?partition=${state.partition}#partition`,
});

type Unit = Job["partition_unit"];

const STATES = [
  "materialized",
  "partial",
  "running",
  "queued",
  "waiting",
  "late",
  "failed",
  "missing",
];

/** The name of the grid's row that holds a partition, and the partition's name in that row. */
function cellName(unit: Unit, key: string): { row: string; label: string } {
  const year = key.slice(0, 4);
  if (unit === "month") return { row: year, label: key.slice(5, 7) };
  if (unit === "week") return { row: year, label: key.slice(5) };
  return { row: key.slice(0, 7), label: key.slice(8) };
}

const described = ({ partition, state, revised = 0, reason }: GridCell) =>
  `${partition}: ${state}${revised > 0 ? `, ${revised} rows revised since` : ""}${
    reason ? `. ${reason.slice(0, REASON_MAX)}` : ""
  }`;

/** Cells newest first; shown by month, oldest day first. */
export const Grid: FC<{ name: string; unit: Unit; cells: readonly GridCell[] }> = ({
  name,
  unit,
  cells,
}) => {
  const rows = Map.groupBy(cells.toReversed(), ({ partition }) => cellName(unit, partition).row);
  return (
    <div class={`grid ${unit}`} data-grid={name}>
      {[...rows].toReversed().map(([row, inRow]) => (
        <div class="grid-row">
          <h3>{row}</h3>
          <ol>
            {inRow.map((cell) => (
              <li>
                <a
                  id={`${name}-${cell.partition}`}
                  class={`cell ${cell.state}${(cell.revised ?? 0) > 0 ? " revised" : ""}`}
                  href={cell.href}
                >
                  <span aria-hidden="true">{cellName(unit, cell.partition).label}</span>
                  <b aria-hidden="true">{signOf(cell.state)}</b>
                  <span class="told">{described(cell)}</span>
                </a>
              </li>
            ))}
          </ol>
        </div>
      ))}
    </div>
  );
};

/** What the signs and colours of a grid mean. */
export const Legend: FC<{ states?: readonly string[]; revised?: boolean }> = ({
  states = STATES,
  revised = true,
}) => (
  <ul class="legend" aria-label="Legend">
    {states.map((state) => (
      <li>
        <span class={`cell ${state}`} aria-hidden="true">
          <b>{signOf(state)}</b>
        </span>
        {state}
      </li>
    ))}
    {revised && (
      <li>
        <span class="cell materialized revised" aria-hidden="true">
          <b>✓</b>
        </span>
        revised since
      </li>
    )}
  </ul>
);

/** The newest states in one line, oldest first. */
export const Strip: FC<{ label: string; cells: readonly GridCell[] }> = ({ label, cells }) => (
  <ol class="strip" aria-label={label}>
    {cells.toReversed().map((cell) => (
      <li>
        <a
          class={`cell ${cell.state}${(cell.revised ?? 0) > 0 ? " revised" : ""}`}
          href={cell.href}
        >
          <b aria-hidden="true">{signOf(cell.state)}</b>
          <span class="told">{described(cell)}</span>
        </a>
      </li>
    ))}
  </ol>
);
