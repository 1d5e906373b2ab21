// @ts-check
// Draws charts: lines on one axis, the reader's clock below, another one above. Colours come from
// the page's style, so that dark and light both fit.

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
  const { times, lines, revised, clocks, dated, unit } = JSON.parse(holder.dataset.chart ?? "{}");
  const [zone, beside] = clocks;
  const narrow = holder.clientWidth < 600;
  const days = (times.at(-1) - times[0]) / 86_400;
  const withHours = !dated && days <= DAYS_WITH_HOURS;
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
    tzDate: (/** @type {number} */ seconds) =>
      Package.tzDate(new Date(seconds * 1_000), zone === "UTC" ? "Etc/UTC" : zone),
    scales: { x: { time: true } },
    legend: { live: true },
    axes: [
      clockAxis({ ...axis, side: 2 }, zone, { days, withHours, narrow }),
      {
        ...axis,
        ...(unit ? { label: unit, labelSize: 18, labelFont: "12px system-ui" } : {}),
        size: narrow ? 60 : 72,
        values: (/** @type {unknown} */ _, /** @type {number[]} */ marks) => marks.map(short),
      },
      // Over months the hour of a day says nothing.
      ...(beside && withHours
        ? [
            clockAxis({ ...axis, side: 0, grid: { show: false } }, beside, {
              days,
              withHours,
              narrow,
            }),
          ]
        : []),
    ],
    series: [
      {
        label: dated ? "Date" : nameOf(zone),
        value: (/** @type {unknown} */ _, /** @type {number | null} */ at) =>
          at === null ? "–" : both(at, zone, beside, dated),
      },
      ...lines.map((/** @type {{ name: string, hue: number, dashed: boolean }} */ line) => ({
        label: line.name,
        stroke: colour(`--line-${line.hue}`),
        width: line.dashed ? 1.5 : 2,
        dash: line.dashed ? [6, 4] : [],
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
  // This locale writes dates as 2026-01-31.
  return new Intl.DateTimeFormat("en-CA", { timeZone: zone, hourCycle: "h23", ...more });
}

const nameOf = (/** @type {string} */ zone) =>
  zone === "UTC" ? "UTC" : `${zone.split("/").at(-1)?.replaceAll("_", " ")} time`;

/** An instant by one clock and, where there is one, another beside it. */
function both(
  /** @type {number} */ seconds,
  /** @type {string} */ zone,
  /** @type {string | null} */ beside,
  /** @type {boolean} */ dated,
) {
  const date = new Date(seconds * 1_000);
  const day = clock(zone, { year: "numeric", month: "2-digit", day: "2-digit" }).format(date);
  if (dated) return day;
  const read = (/** @type {string} */ one) =>
    clock(one, { hour: "2-digit", minute: "2-digit", timeZoneName: "short" }).format(date);
  return `${day} ${read(zone)}${beside ? ` · ${read(beside)}` : ""}`;
}

/** A time axis as the clocks of a zone show it. */
function clockAxis(
  /** @type {object} */ axis,
  /** @type {string} */ zone,
  /** @type {{ days: number, withHours: boolean, narrow: boolean }} */ { days, withHours, narrow },
) {
  const time = clock(zone, { hour: "2-digit", minute: "2-digit" });
  const day = clock(zone, { month: "2-digit", day: "2-digit" });
  const month = clock(zone, { year: "numeric", month: "2-digit" });
  const named = (/** @type {number} */ mark) => {
    const date = new Date(mark * 1_000);
    if (days > 300) return month.format(date);
    const hour = time.format(date);
    return !withHours || hour === "00:00" ? day.format(date) : `${day.format(date)} ${hour}`;
  };
  return {
    ...axis,
    scale: "x",
    space: narrow ? 85 : 110,
    size: 34,
    label: withHours ? nameOf(zone) : "date",
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
