// @ts-check
// Draws the series page's chart: a line for each knowledge time on one axis, UTC below, the
// market's clock above. Colours come from the page's style, so that dark and light both fit.

/** @type {any} */
const Package = /** @type {any} */ (globalThis).uPlot;

const HEIGHT = 320;
const HEIGHT_NARROW = 260;
const DAYS_WITH_HOURS = 40;

/** A colour of the page's style, as the canvas understands it: dark or light already chosen. */
function colour(/** @type {string} */ name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** @param {HTMLElement} holder */
function draw(holder) {
  const { times, lines, revised, zone, unit } = JSON.parse(holder.dataset.chart ?? "{}");
  const narrow = holder.clientWidth < 600;
  const days = (times.at(-1) - times[0]) / 86_400;
  const stroke = ["--line-a", "--line-b"].map(colour);
  const axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
  };
  // The points that differ between both states: dots without a line.
  const marks = {
    label: "revised",
    stroke: colour("--late"),
    paths: () => null,
    points: { show: true, size: 7, width: 2, fill: colour("--late-soft") },
    value: (/** @type {unknown} */ _, /** @type {number | null} */ value) =>
      value === null ? "–" : "yes",
  };
  const options = {
    width: holder.clientWidth,
    height: narrow ? HEIGHT_NARROW : HEIGHT,
    tzDate: (/** @type {number} */ seconds) => Package.tzDate(new Date(seconds * 1_000), "Etc/UTC"),
    scales: { x: { time: true } },
    legend: { live: true },
    axes: [
      clockAxis(axis, "UTC", days, narrow),
      {
        ...axis,
        ...(unit ? { label: unit, labelSize: 18, labelFont: "12px system-ui" } : {}),
        size: narrow ? 60 : 72,
        values: (/** @type {unknown} */ _, /** @type {number[]} */ marks) => marks.map(short),
      },
      // Over months the hour of a day says nothing.
      ...(zone === "UTC" || days > DAYS_WITH_HOURS ? [] : [clockAxis(axis, zone, days, narrow)]),
    ],
    series: [
      {
        label: "UTC",
        value: (/** @type {unknown} */ _, /** @type {number | null} */ at) =>
          at === null ? "–" : both(at, zone),
      },
      ...lines.map((/** @type {{ name: string }} */ { name }, /** @type {number} */ index) => ({
        label: name,
        stroke: stroke[index],
        width: index === 0 ? 2 : 1.5,
        dash: index === 0 ? [] : [6, 4],
        points: { show: times.length < 40 },
        value: (/** @type {unknown} */ _, /** @type {number | null} */ value) =>
          value === null ? "–" : `${value.toLocaleString("en-US")} ${unit ?? ""}`,
      })),
      ...(revised.length > 0 ? [marks] : []),
    ],
  };
  holder.replaceChildren();
  const chosen = new Set(revised);
  const data = [times, ...lines.map((/** @type {{ values: unknown[] }} */ { values }) => values)];
  if (revised.length > 0) {
    data.push(
      times.map((/** @type {number} */ _, /** @type {number} */ index) =>
        chosen.has(index) ? lines[0].values[index] : null,
      ),
    );
  }
  new Package(options, data, holder);
}

const short = (/** @type {number} */ value) =>
  Math.abs(value) >= 1e6
    ? `${value / 1e6} M`
    : value.toLocaleString("en-US", { maximumFractionDigits: 4 });

function clock(/** @type {string} */ zone, /** @type {Intl.DateTimeFormatOptions} */ more) {
  return new Intl.DateTimeFormat("en-GB", { timeZone: zone, hourCycle: "h23", ...more });
}

function both(/** @type {number} */ seconds, /** @type {string} */ zone) {
  const date = new Date(seconds * 1_000);
  const utc = date.toISOString().slice(0, 16).replace("T", " ");
  if (zone === "UTC") return utc;
  const local = clock(zone, { weekday: "short", hour: "2-digit", minute: "2-digit" }).format(date);
  return `${utc} · ${local} ${zone.split("/").at(-1)?.replace("_", " ")}`;
}

/** A time axis as clocks of a zone show it: UTC below, a market's above. */
function clockAxis(
  /** @type {object} */ axis,
  /** @type {string} */ zone,
  /** @type {number} */ days,
  /** @type {boolean} */ narrow,
) {
  const below = zone === "UTC";
  const time = clock(zone, { hour: "2-digit", minute: "2-digit" });
  const day = clock(zone, { day: "numeric", month: "short" });
  const month = clock(zone, { month: "short", year: "numeric" });
  const named = (/** @type {number} */ mark) => {
    const date = new Date(mark * 1_000);
    if (days > 300) return month.format(date);
    const hour = time.format(date);
    return days > DAYS_WITH_HOURS || (below && hour === "00:00")
      ? day.format(date)
      : `${day.format(date)} ${hour}`;
  };
  return {
    ...axis,
    scale: "x",
    side: below ? 2 : 0,
    space: narrow ? 85 : 110,
    size: 34,
    ...(below ? {} : { grid: { show: false } }),
    label: below ? "UTC" : `${zone.split("/").at(-1)?.replace("_", " ")} time`,
    labelSize: 18,
    labelFont: "12px system-ui",
    values: (/** @type {unknown} */ _, /** @type {number[]} */ marks) => marks.map(named),
  };
}

const holders = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-chart]")]);
const drawAll = () => holders.forEach(draw);
drawAll();
let waiting = 0;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(drawAll, 150);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
