// What a process of the node counts. Children tell theirs to the supervisor, which sums them all
// and shows them; what a child had not told when it died, a second's worth, is lost.

import { type Series, Tally, type TallyTable } from "../../shared/tally.ts";

const TASK_SECONDS = [0.1, 0.5, 1, 5, 15, 60, 300, 1_800, 7_200, 43_200] as const;
const ASK_SECONDS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60] as const;
const LOAD_SECONDS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60] as const;
const BATCH_SIZES = [1, 2, 4, 8, 16] as const;

/** Everything that is counted. */
const TABLE = {
  vantage_node_tasks_claimed_total: {
    help: "Tasks that the service gave to this node.",
    labels: ["kind"],
  },
  vantage_node_tasks_ended_total: {
    help: "Tasks that left this node, by how; abandoned are those that nobody waited for.",
    labels: ["kind", "outcome"],
  },
  vantage_node_task_duration_seconds: {
    help: "Time from a task's claim until it left this node.",
    labels: ["kind"],
    bounds: TASK_SECONDS,
  },
  vantage_node_leases_lost_total: {
    help: "Tasks that turned out to be another's while they ran here.",
    labels: ["kind"],
  },
  vantage_node_service_failures_total: {
    help: "Requests to the service that got no answer.",
    labels: ["request"],
  },
  vantage_node_line_requests_total: {
    help: "Predictions asked by the direct line, by what came of it.",
    labels: ["status"],
  },
  vantage_node_line_request_duration_seconds: {
    help: "Time from a whole request of the direct line until its answer.",
    labels: [],
    bounds: ASK_SECONDS,
  },
  vantage_node_children_started_total: {
    help: "Child processes that were started; many are of children that crash.",
    labels: [],
  },
  vantage_node_batch_images: {
    help: "Images that a model looked at in one run.",
    labels: [],
    bounds: BATCH_SIZES,
  },
  vantage_node_model_loads_total: {
    help: "Models that were opened, or could not be.",
    labels: ["result"],
  },
  vantage_node_model_load_duration_seconds: {
    help: "Time to open a model, the download of its weights included.",
    labels: [],
    bounds: LOAD_SECONDS,
  },
  vantage_node_cache_requests_total: {
    help: "Objects asked of the cache, by whether they were there.",
    labels: ["result"],
  },
  vantage_node_cache_fetched_bytes_total: {
    help: "Bytes that were fetched into the cache.",
    labels: [],
  },
} as const satisfies TallyTable;

/** What this process counted until it tells; in the supervisor, all since it began. */
export const tally = new Tally(TABLE);

/** Has a child tell what it counted, from time to time and whenever it is called. */
export function tellCounts(tell: (series: Series[]) => void, everyMs = 1_000): () => void {
  const tellNow = () => {
    const series = tally.take();
    if (series.length > 0) tell(series);
  };
  setInterval(tellNow, everyMs).unref();
  return tellNow;
}
