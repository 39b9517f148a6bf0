// Where events stand on the axis: by their order, or by their time. The order is the record's; a time
// is what was stated, and may be equal, missing, or earlier than that of the event before.

const UNITS = 10_000; // of the slider on the time axis
const BREAK_SHARE = 0.04; // of the axis, for a gap that is not drawn at its length
const BREAKS_MAX = 8;
const BREAK_OF_REST = 0.25; // a gap is long from such a part of all shorter ones on,
const BREAK_OF_USUAL = 10; // and from so many times the middle one on

let byTime = false;

// An event's time, us since 1970: what its source claims or the log it was copied from says, else the
// log's; null where nobody knows.
function timeStated(number) {
  const told = page.events.when[number];
  return told === undefined ? eventTime(number) : told;
}

// Whether an event's time is before that of the event before it, and by how much (us).
function backBy(number) {
  const [now, before] = number ? [timeStated(number), timeStated(number - 1)] : [null, null];
  return now === null || before === null ? 0 : Math.max(0, before - now);
}

const axis = (() => {
  const times = new Float64Array(EVENTS); // of the axis: an event without one has that before it
  let known = numbers.map(timeStated).find((time) => time !== null) ?? null;
  const isTimed = known !== null;
  let [unknown, back] = [0, 0];
  for (let number = 0; number < EVENTS; number++) {
    const told = timeStated(number);
    if (told === null) unknown++;
    else known = told;
    times[number] = known ?? 0;
    if (backBy(number)) back++;
  }
  const order = Int32Array.from(numbers).sort((a, b) => times[a] - times[b] || a - b);
  const points = [...new Set(Array.from(order, (number) => times[number]))];
  const gaps = points.slice(1).map((time, index) => ({ from: points[index], to: time, size: time - points[index] }));
  const sizes = gaps.map((gap) => gap.size).sort((a, b) => b - a);
  const usual = sizes[sizes.length >> 1] ?? 0;
  let rest = sizes.reduce((sum, size) => sum + size, 0);
  let least = Infinity; // of the long gaps
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

// Where an event stands, from 0 to 1.
const shareOf = (number) => (byTime ? axis.shares[number] : EVENTS > 1 ? number / (EVENTS - 1) : 0);

// The event nearest to a place on the time axis; of several there the last.
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

// ---------------------------------------------------------------- ticks and gaps, in words

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms * 1e3).concat(
  [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000].map((s) => s * 1e6),
);
const TICKS_MAX = 6;
const LABEL_WIDTH = 86; // px that a label takes: nearer ones are left out
const FIRST_WIDTH = 190; // the same of the first, which begins where it stands and has the day

// Round times with their places on an axis of so many px: the beginning, and each step where something
// is drawn.
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

// A time on the axis: the day where it is another than before, and no more digits than steps have.
function tickText(time, before, step) {
  const told = moment(time);
  const day = before === null || moment(before).slice(0, 10) !== told.slice(0, 10) ? told.slice(0, 11) : "";
  if (step >= 86_400e6) return told.slice(0, 10);
  return day + told.slice(11, step < 1e6 || before === null ? 23 : 19);
}

const gapText = (gap) => duration(gap.size / 1000);

// What the axis says, in a sentence or two.
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
  if (unknown) parts.push(`${plural(unknown, "event has", "events have")} no time, and ${unknown === 1 ? "stands" : "stand"} with the event before.`);
  return parts.join(" ");
}
