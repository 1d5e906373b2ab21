// @ts-check
// What the console's pages do beyond HTML: refresh their live parts in place, move through grids by
// arrow keys, pick days from a calendar, fold filters on a phone, offer the browser's own clock,
// copy snippets, and send a form once. Every page works without it.

const BACKOFF_MS_MAX = 60_000;
const NEXT = { ArrowRight: 1, ArrowLeft: -1 };

/** Makes a node like another, keeping what did not change: focus, scroll, running transitions. */
function become(/** @type {Element} */ old, /** @type {Element} */ fresh) {
  for (const { name } of [...old.attributes]) {
    // What a reader opened stays open.
    if (!fresh.hasAttribute(name) && !(name === "open" && old.id)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name === "open" && old.id) continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((node, index) => {
    const known = before[index];
    if (!known) old.append(node);
    else if (known instanceof Element && node instanceof Element && isAlike(known, node)) {
      become(known, node);
    } else if (known.nodeType === Node.TEXT_NODE && node.nodeType === Node.TEXT_NODE) {
      if (known.nodeValue !== node.nodeValue) known.nodeValue = node.nodeValue;
    } else known.replaceWith(node);
  });
  for (const left of before.slice(after.length)) left.remove();
}

const isAlike = (/** @type {Element} */ left, /** @type {Element} */ right) =>
  left.tagName === right.tagName && left.id === right.id;

const liveParts = () =>
  /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[data-live]")]);

function say(/** @type {string} */ text) {
  const line = document.getElementById("live-state");
  if (line && line.textContent !== text) line.textContent = text;
}

let failures = 0;
let timer = 0;

function plan() {
  clearTimeout(timer);
  const every = Math.min(...liveParts().map((part) => Number(part.dataset.live) * 1_000));
  if (!Number.isFinite(every) || document.hidden) return;
  timer = setTimeout(refresh, Math.min(every * 2 ** failures, Math.max(every, BACKOFF_MS_MAX)));
}

async function refresh() {
  try {
    const url = new URL(location.href);
    url.searchParams.set("fragment", "1");
    const response = await fetch(url, { headers: { Accept: "text/html" } });
    if (response.status === 401) return say("Your session is over: log in again.");
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of liveParts()) {
      const replacement = fresh.getElementById(part.id);
      if (replacement) become(part, replacement);
    }
    failures = 0;
    say("");
    prepareGrids();
  } catch {
    failures++;
    say("The console does not answer; trying again.");
  }
  plan();
}

/** One cell of a grid, the newest, is reached by Tab, the others by arrow keys. */
function prepareGrids() {
  for (const grid of document.querySelectorAll("[data-grid]")) {
    const cells = [...grid.querySelectorAll("a.cell")];
    const chosen = cells.includes(/** @type {Element} */ (document.activeElement))
      ? document.activeElement
      : [...grid.querySelectorAll(".grid-row:first-child a.cell")].at(-1);
    for (const cell of cells) cell.setAttribute("tabindex", cell === chosen ? "0" : "-1");
  }
}

function moveInGrid(/** @type {KeyboardEvent} */ event) {
  const cell = event.target;
  if (!(cell instanceof HTMLElement) || !cell.matches("[data-grid] a.cell")) return;
  const cells = /** @type {HTMLElement[]} */ ([
    ...(cell.closest("[data-grid]")?.querySelectorAll("a.cell") ?? []),
  ]);
  const target = targetOf(event.key, cells, cell);
  if (!target) return;
  event.preventDefault();
  cell.tabIndex = -1;
  target.tabIndex = 0;
  target.focus();
}

/** @returns {HTMLElement | undefined} */
function targetOf(
  /** @type {string} */ key,
  /** @type {HTMLElement[]} */ cells,
  /** @type {HTMLElement} */ cell,
) {
  if (key === "Home") return cells[0];
  if (key === "End") return cells.at(-1);
  if (key in NEXT) {
    return cells[cells.indexOf(cell) + NEXT[/** @type {keyof typeof NEXT} */ (key)]];
  }
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const from = cell.getBoundingClientRect();
  const away = (/** @type {HTMLElement} */ other) => {
    const { top, left } = other.getBoundingClientRect();
    const down = key === "ArrowDown" ? top - from.top : from.top - top;
    return down > 2 ? down * 1_000 + Math.abs(left - from.left) : Infinity;
  };
  const nearest = cells.toSorted((left, right) => away(left) - away(right))[0];
  return nearest && away(nearest) < Infinity ? nearest : undefined;
}

/** A double click sends a form once. */
function sendOnce(/** @type {SubmitEvent} */ event) {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
}

function prepareCopying() {
  for (const button of document.querySelectorAll("button[data-copy]")) {
    if (!(button instanceof HTMLButtonElement) || !navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy ?? "")?.textContent ?? "";
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => {
        button.textContent = "Copy";
      }, 2_000);
    });
  }
}

function prepareClock() {
  for (const option of document.querySelectorAll("option[data-own-zone]")) {
    if (!(option instanceof HTMLOptionElement) || option.value) continue;
    option.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
    option.textContent = `mine (${option.value})`;
    option.hidden = false;
  }
}

/** Beside a day that is typed, a button that picks one from the browser's calendar. */
function prepareDates() {
  if (!("showPicker" in HTMLInputElement.prototype)) return;
  for (const typed of document.querySelectorAll(".date label input")) {
    if (!(typed instanceof HTMLInputElement)) continue;
    const picker = Object.assign(document.createElement("input"), {
      type: "date",
      tabIndex: -1,
      className: "picker",
      ariaHidden: "true",
    });
    const button = Object.assign(document.createElement("button"), {
      type: "button",
      className: "quiet",
      textContent: "▾",
      ariaLabel: `Pick ${typed.closest("label")?.textContent?.trim()} from a calendar`,
    });
    button.addEventListener("click", () => {
      picker.value = typed.value;
      picker.showPicker();
    });
    picker.addEventListener("change", () => {
      typed.value = picker.value;
    });
    typed.closest(".date")?.append(picker, button);
  }
}

/** On a phone filters are behind a button; not where they say what was wrong. */
function foldFilters() {
  const narrow = matchMedia("(max-width: 40rem)");
  for (const form of document.querySelectorAll("form.filters")) {
    if (!(form instanceof HTMLElement) || form.querySelector("[role=alert]")) continue;
    const button = Object.assign(document.createElement("button"), {
      type: "button",
      className: "quiet fold",
      textContent: "Filters",
      ariaExpanded: "false",
    });
    const arrange = () => {
      button.hidden = !narrow.matches;
      form.hidden = narrow.matches && button.ariaExpanded === "false";
    };
    button.addEventListener("click", () => {
      button.ariaExpanded = String(button.ariaExpanded === "false");
      arrange();
    });
    narrow.addEventListener("change", arrange);
    form.before(button);
    arrange();
  }
}

document.addEventListener("keydown", moveInGrid);
document.addEventListener("submit", sendOnce);
document.addEventListener("visibilitychange", () => (document.hidden ? plan() : refresh()));
// A page that comes back from the browser's memory can send its forms again.
addEventListener("pageshow", () => {
  for (const form of document.forms) delete form.dataset.sent;
});
prepareGrids();
prepareCopying();
prepareClock();
prepareDates();
foldFilters();
plan();
