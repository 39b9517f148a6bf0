// Places of events on the axis: by order, or by time. The order is the record's; a time is only stated,
// and may be equal to that of the previous event, missing, or earlier.

const UNITS = 10_000; // steps of the slider on the time axis
const BREAK_SHARE = 0.04; // share of the axis for a shortened gap
const BREAKS_MAX = 8;
const BREAK_OF_REST = 0.25; // a gap is long from this share of all shorter ones on,
const BREAK_OF_USUAL = 10; // and from this multiple of the median

let byTime = false;

// An event's time, us since 1970: as claimed by its source or by the log it was copied from, else the
// log's; null if unknown.
function timeStated(number) {
  const facts = page.events.when[number];
  return facts === undefined ? eventTime(number) : facts;
}

// How much earlier an event's time is than that of the previous event (us), else 0.
function backBy(number) {
  const [now, before] = number ? [timeStated(number), timeStated(number - 1)] : [null, null];
  return now === null || before === null ? 0 : Math.max(0, before - now);
}

const axis = (() => {
  const times = new Float64Array(EVENTS); // on the axis: an event without a time has the previous one's
  let known = numbers.map(timeStated).find((time) => time !== null) ?? null;
  const isTimed = known !== null;
  let [unknown, back] = [0, 0];
  for (let number = 0; number < EVENTS; number++) {
    const facts = timeStated(number);
    if (facts === null) unknown++;
    else known = facts;
    times[number] = known ?? 0;
    if (backBy(number)) back++;
  }
  const order = Int32Array.from(numbers).sort((a, b) => times[a] - times[b] || a - b);
  const points = [...new Set(Array.from(order, (number) => times[number]))];
  const gaps = points.slice(1).map((time, index) => ({ from: points[index], to: time, size: time - points[index] }));
  const sizes = gaps.map((gap) => gap.size).sort((a, b) => b - a);
  const usual = sizes[sizes.length >> 1] ?? 0;
  let rest = sizes.reduce((sum, size) => sum + size, 0);
  let least = Infinity; // size of the smallest long gap
  for (const size of sizes.slice(0, BREAKS_MAX)) {
    rest -= size;
    if (size <= BREAK_OF_REST * rest || size <= BREAK_OF_USUAL * usual) break;
    least = size;
  }
  const long = gaps.filter((gap) => gap.size >= least).slice(0, BREAKS_MAX);
  const isLong = new Set(long);
  const drawn = gaps.reduce((sum, gap) => sum + (isLong.has(gap) ? 0 : gap.size), 0);
  const room = 1 - long.length * BREAK_SHARE;
  const shareAt = new Map();
  let share = gaps.length ? 0 : 0.5;
  shareAt.set(points[0], share);
  for (const gap of gaps) {
    gap.share = share;
    share += isLong.has(gap) ? BREAK_SHARE : (gap.size / drawn) * room;
    gap.end = share;
    shareAt.set(gap.to, share);
  }
  const shares = Float64Array.from(times, (time) => shareAt.get(time));
  return { times, order, points, gaps, long, isLong, shares, unknown, back, isTimed };
})();

// Place of an event, from 0 to 1.
const shareOf = (number) => (byTime ? axis.shares[number] : EVENTS > 1 ? number / (EVENTS - 1) : 0);

// The event nearest to a place on the time axis; the last of several.
function nearestByTime(share) {
  const { order, shares } = axis;
  let [low, high] = [0, EVENTS];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (shares[order[middle]] <= share) low = middle + 1;
    else high = middle;
  }
  if (low === 0 || low === EVENTS) return order[Math.max(0, low - 1)];
  const after = shares[order[low]] - share < share - shares[order[low - 1]];
  if (!after) return order[low - 1];
  let last = low;
  while (last + 1 < EVENTS && shares[order[last + 1]] === shares[order[low]]) last++;
  return order[last];
}

// ---------------------------------------------------------------- ticks and text

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms * 1e3).concat(
  [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000].map((s) => s * 1e6),
);
const TICKS_MAX = 6;
const LABEL_WIDTH = 86; // px of a label: nearer ones are omitted
const FIRST_WIDTH = 190; // the same for the first, which is left-aligned and includes the day

// Round times with their places on an axis of a width in px: the beginning, and each step with events
// nearby.
function ticks(width) {
  const { points, gaps, isLong } = axis;
  const drawn = gaps.filter((gap) => !isLong.has(gap));
  const total = drawn.reduce((sum, gap) => sum + gap.size, 0);
  const step = STEPS.find((each) => total / each <= TICKS_MAX) ?? STEPS.at(-1);
  const found = [{ share: axis.shares[axis.order[0]], time: points[0] }];
  const add = (share, time) => {
    const room = (found.length > 1 ? LABEL_WIDTH : FIRST_WIDTH) / width;
    if (share - found.at(-1).share >= room && share <= 1 - LABEL_WIDTH / 2 / width) found.push({ share, time });
  };
  for (const gap of gaps) {
    const first = Math.ceil(gap.from / step) * step;
    for (let time = first; !isLong.has(gap) && time <= gap.to; time += step) {
      add(gap.share + ((time - gap.from) / gap.size) * (gap.end - gap.share), time);
    }
    if (isLong.has(gap)) add(gap.end, gap.to);
  }
  return { step, found };
}

// A time on the axis: with the day if it changes, and only as many digits as the steps have.
function tickText(time, before, step) {
  const facts = moment(time);
  const day = before === null || moment(before).slice(0, 10) !== facts.slice(0, 10) ? facts.slice(0, 11) : "";
  if (step >= 86_400e6) return facts.slice(0, 10);
  return day + facts.slice(11, step < 1e6 || before === null ? 23 : 19);
}

const gapText = (gap) => duration(gap.size / 1000);

// Description of the axis, in a sentence or two.
function axisText() {
  const claimed = numbers.some((number) => claimOf(number) !== undefined);
  const copied = numbers.some((number) => more(number).origin);
  const whose = claimed ? "as the source says" : copied ? "of the log it was copied from" : "of the log";
  const { long, back, unknown } = axis;
  const parts = [`Times ${whose}, in UTC. The order is the record's; a time is only what was stated.`];
  if (long.length) {
    const list = long.map((gap) => `${gapText(gap)} from ${moment(gap.from, true)}`).join(", ");
    parts.push(`${plural(long.length, "long gap is", "long gaps are")} shortened: ${list}.`);
  }
  if (back) parts.push(`${plural(back, "event states", "events state")} an earlier time than the event before.`);
  if (unknown) parts.push(`${plural(unknown, "event has", "events have")} no time, and ${unknown === 1 ? "is" : "are"} placed at the event before.`);
  return parts.join(" ");
}
