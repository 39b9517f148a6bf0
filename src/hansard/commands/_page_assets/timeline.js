// The slider and what it lies over: a lane an agent, a mark an event.

const LANES = 8; // more agents than that share the last lane
const LANE_HEIGHT = 11;
const THUMB = 15; // the slider's thumb is so wide, and its middle is the point

const slider = byId("slider");
const canvas = byId("lanes");
slider.max = String(Math.max(0, EVENTS - 1));

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

// What an event's mark is; of several on one spot the later of MARKS is seen.
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
  const x = (number) => THUMB / 2 + (EVENTS > 1 ? (number / (EVENTS - 1)) * span : 0);
  if (CUT) {
    pen.fillStyle = color("--parents");
    pen.fillRect(0, 0, x(CUT - 0.5), height);
  }
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
  const mark = Math.max(1, Math.min(6, (span / EVENTS) * 0.6));
  for (let lane = 0; lane < lanes; lane++) {
    for (let column = 0; column < columns; column++) {
      const found = seen[lane * columns + column];
      if (found < 0) continue;
      pen.fillStyle = colors[found];
      pen.fillRect(column - mark / 2, 4 + lane * LANE_HEIGHT, mark, LANE_HEIGHT - 2);
    }
  }
}

function startTimeline() {
  const names = [...laneOf.keys()].map((name) => agents.get(name)?.name ?? name);
  const shownNames = names.length > LANES ? [...names.slice(0, LANES - 1), `${names.length - LANES + 1} more`] : names;
  byId("names").replaceChildren(...shownNames.map((name) => rec(name)));
  byId("time").style.setProperty("--lanes", `${lanes * LANE_HEIGHT + 6}px`);
  new ResizeObserver(drawLanes).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawLanes);
}

const sinceStart = (number) =>
  isImported(number) ? "" : `+${duration((eventTime(number) - START) / 1000).replace("<", "")}`;

function spokenTime(point) {
  const claimed = claimOf(point);
  if (claimed) return `, occurred at ${inLine(claimed)}`;
  return isImported(point) ? "" : `, ${moment(eventTime(point), true)}`;
}

// Where the point is, in words.
function showWhere(point) {
  const told = [
    el("strong", { class: "mono" }, address(point)),
    el("span", { class: "mono" }, rec(versionName(point))),
    isImported(point) ? null : el("time", { class: "mono" }, moment(eventTime(point))),
    isImported(point) ? null : el("span", { class: "dim" }, sinceStart(point)),
    el("span", { class: "dim" }, `event ${count(point + 1)} of ${count(EVENTS)}`),
  ];
  const claimed = claimOf(point);
  const { origin } = more(point);
  if (isParents(point)) told.push(el("span", { class: "chip parents" }, "before the fork"));
  if (claimed) told.push(el("span", { class: "claim" }, "occurred at ", rec(claimed), ", says the source"));
  if (origin) {
    const from = `position ${origin.position} of log ${origin.log}, ${String(origin.at).slice(0, 19)}Z`;
    told.push(el("span", { class: "claim" }, "copied from ", rec(from)));
  }
  if (!isWhole(point)) {
    const what = point === lastOf(rowOf[point]) ? "transaction" : "commit";
    told.push(el("span", { class: "claim" }, `inside a ${what}, which is on record whole`));
  }
  byId("where").replaceChildren(...told.filter(Boolean));
  slider.setAttribute(
    "aria-valuetext",
    `event ${point + 1} of ${EVENTS}: ${inLine(headline(point))}; position ${address(point)}, ` +
      `${inLine(versionName(point))}${spokenTime(point)}`,
  );
}
