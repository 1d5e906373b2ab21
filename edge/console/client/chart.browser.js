// @ts-check
// Draws the series page's chart: a line for each knowledge time on one axis, UTC below, the
// market's clock above. Colours come from the page's style, so that dark and light both fit.

/** @type {any} */
const Package = /** @type {any} */ (globalThis).uPlot;

const HEIGHT = 320;
const HEIGHT_NARROW = 260;

/** @param {HTMLElement} holder */
function draw(holder) {
  const { times, lines, zone, column } = JSON.parse(holder.dataset.chart ?? "{}");
  const narrow = holder.clientWidth < 600;
  const style = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const stroke = ["--line-a", "--line-b"].map(colour);
  const axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
  };
  const options = {
    width: holder.clientWidth,
    height: narrow ? HEIGHT_NARROW : HEIGHT,
    tzDate: (/** @type {number} */ seconds) => Package.tzDate(new Date(seconds * 1_000), "Etc/UTC"),
    scales: { x: { time: true } },
    legend: { live: true },
    axes: [
      { ...axis, space: narrow ? 70 : 90 },
      {
        ...axis,
        size: narrow ? 52 : 68,
        values: (/** @type {unknown} */ _, /** @type {number[]} */ marks) => marks.map(short),
      },
      ...(zone === "UTC" ? [] : [marketAxis(axis, zone, narrow)]),
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
          value === null ? "–" : `${value.toLocaleString("en-US")}`,
      })),
    ],
  };
  holder.replaceChildren();
  const data = [times, ...lines.map((/** @type {{ values: unknown[] }} */ { values }) => values)];
  const plot = new Package(options, data, holder);
  // The newest state is drawn over the older one.
  plot.root.dataset.column = column;
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

function marketAxis(
  /** @type {object} */ axis,
  /** @type {string} */ zone,
  /** @type {boolean} */ narrow,
) {
  const time = clock(zone, { hour: "2-digit", minute: "2-digit" });
  const day = clock(zone, { day: "numeric", month: "short" });
  return {
    ...axis,
    scale: "x",
    side: 0,
    space: narrow ? 80 : 110,
    size: 40,
    grid: { show: false },
    label: `${zone.split("/").at(-1)?.replace("_", " ")} time`,
    labelSize: 18,
    labelFont: "12px system-ui",
    values: (/** @type {unknown} */ _, /** @type {number[]} */ marks) =>
      marks.map((mark) => `${day.format(mark * 1_000)} ${time.format(mark * 1_000)}`),
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
