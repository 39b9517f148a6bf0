// The slider and the lanes under it: one lane per agent, one mark per event.

const LANES = 8; // further agents share the last lane
const LANE_HEIGHT = 11;
const THUMB = 15; // px width of the slider's thumb, whose middle is the point

const slider = byId("slider");
const canvas = byId("lanes");

const laneOf = (() => {
  const names = new Map();
  for (const stream of page.streams) {
    const name = stream.agent ? stream.name : "life";
    if (!names.has(name)) names.set(name, Math.min(names.size, LANES - 1));
  }
  return names;
})();
const lanes = Math.max(1, Math.min(LANES, laneOf.size));

const BAD = new Set(["failed", "blocked", "in_doubt"]);
const MARKS = ["other", "message", "step", "run", "checkpoint", "decision", "bad"];
const MARK_HEIGHTS = [4, 5, 8, 9, 7, 6, 9]; // of LANE_HEIGHT: the kind of a mark is visible without its color

// The mark of an event; of several in one place the later one of MARKS is visible.
function markOf(number) {
  if (BAD.has(statusAfter(number))) return 6;
  return Math.max(0, MARKS.indexOf(items[itemOf[number]].kind));
}

function drawLanes() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const [width, height] = [canvas.clientWidth, lanes * LANE_HEIGHT + 6];
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const span = Math.max(1, width - THUMB);
  const x = (number) => THUMB / 2 + shareOf(number) * span;
  if (CUT && CUT < EVENTS) {
    pen.fillStyle = color("--parents");
    pen.fillRect(0, 0, (x(CUT - 1) + x(CUT)) / 2, height);
  }
  if (byTime) drawGaps(pen, span, height, color);
  pen.fillStyle = color("--line");
  for (let lane = 0; lane < lanes; lane++) {
    pen.fillRect(THUMB / 2, 3 + lane * LANE_HEIGHT + LANE_HEIGHT / 2 - 0.5, span, 1);
  }
  const columns = Math.ceil(width) + 1;
  const seen = new Int8Array(columns * lanes).fill(-1);
  for (let number = 0; number < EVENTS; number++) {
    const stream = streamOf(number);
    const lane = laneOf.get(stream.agent ? stream.name : "life");
    const at = lane * columns + Math.floor(x(number));
    const mark = markOf(number);
    if (mark > seen[at]) seen[at] = mark;
  }
  const colors = MARKS.map((name) => color(`--mark-${name}`));
  const mark = byTime ? 2 : Math.max(1, Math.min(6, (span / EVENTS) * 0.6));
  for (let lane = 0; lane < lanes; lane++) {
    for (let column = 0; column < columns; column++) {
      const found = seen[lane * columns + column];
      if (found < 0) continue;
      pen.fillStyle = colors[found];
      const tall = MARK_HEIGHTS[found];
      const top = 3 + lane * LANE_HEIGHT + (LANE_HEIGHT - tall) / 2;
      if (MARKS[found] === "bad") {
        pen.fillRect(column - mark / 2, top, mark, tall / 3);
        pen.fillRect(column - mark / 2, top + (2 * tall) / 3, mark, tall / 3);
      } else pen.fillRect(column - mark / 2, top, mark, tall);
    }
  }
}

// Shortened gaps: hatched, between two lines.
function drawGaps(pen, span, height, color) {
  for (const gap of axis.long) {
    const [from, to] = [gap.share, gap.end].map((share) => THUMB / 2 + share * span);
    pen.fillStyle = color("--inset");
    pen.fillRect(from, 0, to - from, height);
    pen.strokeStyle = color("--dim");
    pen.lineWidth = 1;
    pen.beginPath();
    for (let at = from + 3; at < to + height; at += 5) {
      pen.moveTo(Math.min(at, to), Math.max(0, at - to));
      pen.lineTo(Math.max(from, at - height), Math.min(height, at - from));
    }
    pen.stroke();
  }
}

// Times along the time axis, and the lengths of its gaps.
function drawAxis() {
  const box = byId("axis");
  box.hidden = !byTime;
  byId("axis-note").hidden = !byTime;
  if (!byTime) return;
  const { step, found } = ticks(Math.max(1, canvas.clientWidth - THUMB));
  const label = (share, text, kind) => {
    const made = el("span", { class: kind }, text);
    made.style.left = `calc(${THUMB / 2}px + ${share} * (100% - ${THUMB}px))`;
    return made;
  };
  const nodes = found.map((tick, index) => label(tick.share, tickText(tick.time, found[index - 1]?.time ?? null, step), index ? "tick" : "tick first"));
  const gaps = axis.long.map((gap) => label((gap.share + gap.end) / 2, gapText(gap), "gap"));
  box.replaceChildren(...nodes, ...gaps);
}

function setAxis(isByTime) {
  byTime = isByTime && axis.isTimed;
  slider.max = String(byTime ? UNITS : Math.max(0, EVENTS - 1));
  slider.setAttribute("aria-label", `Point in the run, by ${byTime ? "time" : "order"}`);
  byId("by-order").setAttribute("aria-pressed", String(!byTime));
  byId("by-time").setAttribute("aria-pressed", String(byTime));
  document.documentElement.dataset.axis = byTime ? "time" : "order";
  showSlider(thePoint());
  drawAxis();
  drawLanes();
}

function showSlider(point) {
  slider.value = String(byTime ? Math.round(axis.shares[point] * UNITS) : point);
}

const sliderPoint = () => (byTime ? nearestByTime(Number(slider.value) / UNITS) : Number(slider.value));

function startTimeline() {
  const names = [...laneOf.keys()].map((name) => agents.get(name)?.name ?? name);
  const shownNames = names.length > LANES ? [...names.slice(0, LANES - 1), `${names.length - LANES + 1} more`] : names;
  byId("names").replaceChildren(...shownNames.map((name) => rec(name)));
  byId("time").style.setProperty("--lanes", `${lanes * LANE_HEIGHT + 6}px`);
  byId("axis-note").textContent = axisText();
  byId("by-order").addEventListener("click", () => setAxis(false));
  byId("by-time").addEventListener("click", () => setAxis(true));
  byId("by-time").disabled = !axis.isTimed;
  if (!axis.isTimed) byId("by-time").title = "No event of this run has a time";
  setAxis(false);
  new ResizeObserver(() => {
    drawAxis();
    drawLanes();
  }).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawLanes);
}

const sinceStart = (number) =>
  isImported(number) ? "" : `+${duration((eventTime(number) - START) / 1000).replace("<", "")}`;

function spokenTime(point) {
  const claimed = claimOf(point);
  if (claimed) return `, occurred at ${inLine(claimed)}`;
  return isImported(point) ? "" : `, ${moment(eventTime(point), true)}`;
}

// Description of the point.
function showWhere(point) {
  const facts = [
    el("strong", { class: "mono" }, address(point)),
    el("span", { class: "mono" }, rec(versionName(point))),
    isImported(point) ? null : el("time", { class: "mono" }, moment(eventTime(point))),
    isImported(point) ? null : el("span", { class: "dim" }, sinceStart(point)),
    el("span", { class: "dim" }, `event ${count(point + 1)} of ${count(EVENTS)}`),
  ];
  const claimed = claimOf(point);
  const { origin } = more(point);
  if (isParents(point)) facts.push(el("span", { class: "chip parents" }, "before the fork"));
  if (claimed) facts.push(el("span", { class: "claim" }, "occurred at ", rec(claimed), ", says the source"));
  if (origin) {
    const from = `position ${origin.position} of log ${origin.log}, ${String(origin.at).slice(0, 19)}Z`;
    facts.push(el("span", { class: "claim" }, "copied from ", rec(from)));
  }
  const back = backBy(point);
  if (back) facts.push(el("span", { class: "claim" }, `its time is ${duration(back / 1000)} earlier than that of the event before`));
  if (!isWhole(point)) {
    const what = point === lastOf(rowOf[point]) ? "transaction" : "commit";
    facts.push(el("span", { class: "claim" }, `inside a ${what}, which is on record whole`));
  }
  byId("where").replaceChildren(...facts.filter(Boolean));
  slider.setAttribute(
    "aria-valuetext",
    `event ${point + 1} of ${EVENTS}: ${inLine(headline(point))}; position ${address(point)}, ` +
      `${inLine(versionName(point))}${spokenTime(point)}`,
  );
}
