// Places of events on the axis: by order, or by time. The order is the record's; a time is only stated,
// and may be equal to that of the previous event, missing, or earlier.

import { duration, firsts, moment, plural } from "../ui/text";
import type { Outline } from "./outline";

export const UNITS = 10_000; // steps of the slider on the time axis
const BREAK_SHARE = 0.04; // share of the axis for a shortened gap
const BREAKS_MAX = 8;
const BREAK_OF_REST = 0.25; // a gap is long from this share of all shorter ones on,
const BREAK_OF_USUAL = 10; // and from this multiple of the median

interface Gap {
  from: number;
  to: number;
  size: number;
  share: number;
  end: number;
}

export class TimeAxis {
  readonly isTimed: boolean;
  readonly order: Int32Array; // events by time
  readonly shares: Float64Array; // place of an event, from 0 to 1
  readonly long: Gap[];
  readonly unknown: number; // events without a time
  readonly back: number; // events with an earlier time than the one before
  private readonly points: number[];
  private readonly gaps: Gap[];
  private readonly isLong: Set<Gap>;

  constructor(outline: Outline) {
    const size = outline.size;
    const times = new Float64Array(size); // an event without a time has the previous one's
    let known: number | null = null;
    for (let number = 0; number < size && known === null; number++) known = outline.timeStated(number);
    this.isTimed = known !== null;
    let [unknown, back, isSorted] = [0, 0, true];
    for (let number = 0; number < size; number++) {
      const stated = outline.timeStated(number);
      if (stated === null) unknown++;
      else known = stated;
      times[number] = known ?? 0;
      if (number && times[number] < times[number - 1]) isSorted = false;
      if (outline.backBy(number)) back++;
    }
    [this.unknown, this.back] = [unknown, back];
    this.order = new Int32Array(size);
    for (let number = 0; number < size; number++) this.order[number] = number;
    if (!isSorted) this.order.sort((a, b) => times[a] - times[b] || a - b);
    this.points = [];
    for (const number of this.order) if (times[number] !== this.points.at(-1)) this.points.push(times[number]);
    this.gaps = this.points.slice(1).map((time, at) => ({ from: this.points[at], to: time, size: time - this.points[at], share: 0, end: 0 }));
    this.long = this.longGaps();
    this.isLong = new Set(this.long);
    const drawn = this.gaps.reduce((sum, gap) => sum + (this.isLong.has(gap) ? 0 : gap.size), 0);
    const room = 1 - this.long.length * BREAK_SHARE;
    const shareAt = new Map<number, number>();
    let share = this.gaps.length ? 0 : 0.5;
    shareAt.set(this.points[0], share);
    for (const gap of this.gaps) {
      gap.share = share;
      share += this.isLong.has(gap) ? BREAK_SHARE : (gap.size / drawn) * room;
      gap.end = share;
      shareAt.set(gap.to, share);
    }
    this.shares = times.map((time) => shareAt.get(time)!);
  }

  private longGaps(): Gap[] {
    const sizes = Float64Array.from(this.gaps, (gap) => gap.size).sort().reverse();
    const usual = sizes[sizes.length >> 1] ?? 0;
    let rest = sizes.reduce((sum, size) => sum + size, 0);
    let least = Infinity; // size of the smallest long gap
    for (const size of sizes.subarray(0, BREAKS_MAX)) {
      rest -= size;
      if (size <= BREAK_OF_REST * rest || size <= BREAK_OF_USUAL * usual) break;
      least = size;
    }
    return this.gaps.filter((gap) => gap.size >= least).slice(0, BREAKS_MAX);
  }

  // The event nearest to a place; the last of several.
  nearest(share: number): number {
    const { order, shares } = this;
    const size = order.length;
    const low = firsts(size, (place) => shares[order[place]] <= share);
    if (low === 0 || low === size) return order[Math.max(0, low - 1)];
    const isAfter = shares[order[low]] - share < share - shares[order[low - 1]];
    if (!isAfter) return order[low - 1];
    let last = low;
    while (last + 1 < size && shares[order[last + 1]] === shares[order[low]]) last++;
    return order[last];
  }

  // Round times with their places on an axis of a width in px: the beginning, and each step with events
  // nearby.
  ticks(width: number): { step: number; list: { share: number; time: number }[] } {
    const drawn = this.gaps.filter((gap) => !this.isLong.has(gap));
    const total = drawn.reduce((sum, gap) => sum + gap.size, 0);
    const step = STEPS.find((each) => total / each <= TICKS_MAX) ?? STEPS.at(-1)!;
    const list = [{ share: this.shares[this.order[0]], time: this.points[0] }];
    const add = (share: number, time: number) => {
      const room = (list.length > 1 ? LABEL_WIDTH : FIRST_WIDTH) / width;
      if (share - list.at(-1)!.share >= room && share <= 1 - LABEL_WIDTH / 2 / width) list.push({ share, time });
    };
    for (const gap of this.gaps) {
      const first = Math.ceil(gap.from / step) * step;
      for (let time = first; !this.isLong.has(gap) && time <= gap.to; time += step) {
        add(gap.share + ((time - gap.from) / gap.size) * (gap.end - gap.share), time);
      }
      if (this.isLong.has(gap)) add(gap.end, gap.to);
    }
    return { step, list };
  }

  // Description of the axis, in a sentence or two; `whose`: the clock of its times.
  describe(whose: string): string {
    const { long, back, unknown } = this;
    const parts = [`Times ${whose}, in UTC. The order is the record's; a time is only what was stated.`];
    if (long.length) {
      const list = long.map((gap) => `${gapText(gap)} from ${moment(gap.from, true)}`).join(", ");
      parts.push(`${plural(long.length, "long gap is", "long gaps are")} shortened: ${list}.`);
    }
    if (back) parts.push(`${plural(back, "event states", "events state")} an earlier time than the event before.`);
    if (unknown) parts.push(`${plural(unknown, "event has", "events have")} no time, and ${unknown === 1 ? "is" : "are"} placed at the event before.`);
    return parts.join(" ");
  }
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500].map((ms) => ms * 1e3).concat(
  [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000].map((s) => s * 1e6),
);
const TICKS_MAX = 6;
const LABEL_WIDTH = 86; // px of a label: nearer ones are omitted
const FIRST_WIDTH = 190; // the same for the first, which is left-aligned and includes the day

// A time on the axis: with the day if it changes, and only as many digits as the steps have.
export function tickText(time: number, before: number | null, step: number): string {
  const text = moment(time);
  const day = before === null || moment(before).slice(0, 10) !== text.slice(0, 10) ? text.slice(0, 11) : "";
  if (step >= 86_400e6) return text.slice(0, 10);
  return day + text.slice(11, step < 1e6 || before === null ? 23 : 19);
}

export const gapText = (gap: { size: number }): string => duration(gap.size / 1000);
