// Texts. Recorded text is never interpreted: it only becomes text, with unprintable characters written
// as escapes.

import type { Assigned } from "../run/answers";

// Unprintable characters, and those that change the direction of the following text.
const UNSEEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]|\r(?!\n)/g;
const escaped = (char: string) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
export const printable = (text: string): string => text.replace(UNSEEN, escaped);
export const inLine = (text: string): string => printable(text).replace(/\s+/g, " ");

const thousands = new Intl.NumberFormat("en-US"); // created once, as this is slow
export const count = (number: number): string => thousands.format(number);
export const plural = (number: number, one: string, many = one + "s"): string => `${count(number)} ${number === 1 ? one : many}`;

// The end of an id: ids of runs begin alike.
const ID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;
export const short = (id: string): string => (ID.test(id) ? `…${id.slice(-8)}` : id);

// A run's place in an experiment.
export const assignment = (of: Assigned): string =>
  [of.experiment, of.arm && `arm ${of.arm}`, of.task && `task ${of.task}`, of.trial !== undefined && of.trial !== null && `trial ${of.trial}`].filter(Boolean).join(", ");

export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "";
  if (ms > 0 && ms < 0.05) return "<0.1 ms";
  if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(1)) : Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(2)} s`;
  const seconds = Math.floor(ms / 1000);
  const [days, hours, minutes] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${seconds % 60} s`;
}

// A time in us since 1970: UTC, to the microsecond or, shorter, to the second.
export function moment(us: number, toSecond = false): string {
  const iso = new Date(Math.floor(us / 1000)).toISOString();
  const day = iso.slice(0, 10) + " ";
  if (toSecond) return day + iso.slice(11, 19) + "Z";
  return day + iso.slice(11, 23) + String(us % 1000).padStart(3, "0") + "Z";
}

// An ISO time in UTC to the second, such as "2026-11-21 10:00:00Z"; other text as it is.
export function clock(iso: string): string {
  const time = Date.parse(iso);
  return Number.isNaN(time) ? iso : moment(time * 1000, true);
}

// The number of the first places for which something holds, of those that have it all in front.
export function firsts(size: number, holds: (place: number) => boolean): number {
  let [low, high] = [0, size];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Items by a key of theirs, in the order of the first of each.
export function grouped<T>(items: T[], key: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}

// Pass every text, key and number inside a value, with blobs, to a function that returns when to stop.
export function eachWord(value: unknown, visit: (word: string) => boolean | void, resolve: (value: any) => any = (item) => item): boolean {
  const waiting: any[] = [value];
  while (waiting.length) {
    const item = waiting.pop();
    if (item === null || item === undefined) continue;
    if (typeof item !== "object") {
      if (visit(String(item))) return true;
    } else if (Array.isArray(item)) {
      for (let i = item.length - 1; i >= 0; i--) waiting.push(item[i]);
    } else {
      const whole = resolve(item);
      if (whole !== item) waiting.push(whole);
      for (const [key, inner] of Object.entries(item).reverse()) waiting.push(inner, key);
    }
  }
  return false;
}

// Where two values differ, in the order of their fields; undefined where one has no such field.
export interface Difference { path: (string | number)[]; before: unknown; after: unknown }
export function differences(before: unknown, after: unknown): Difference[] {
  const out: Difference[] = [];
  const waiting: [any, any, (string | number)[]][] = [[before, after, []]];
  const isObject = (value: any): value is Record<string, any> => typeof value === "object" && value !== null;
  while (waiting.length) {
    const [old, now, path] = waiting.pop()!;
    if (isObject(old) && isObject(now) && Array.isArray(old) === Array.isArray(now)) {
      const keys = [...new Set([...Object.keys(old), ...Object.keys(now)])];
      for (const key of keys.reverse()) waiting.push([old[key], now[key], [...path, Array.isArray(old) ? Number(key) : key]]);
    } else if (old !== now && JSON.stringify(old) !== JSON.stringify(now)) out.push({ path, before: old, after: now });
  }
  return out;
}

// The first words of a message in any provider's format; without words, the calls in it.
export function firstWords(message: Record<string, any>, resolve: (value: any) => any = (item) => item): string {
  const content = resolve(message.content ?? message.summary ?? null);
  const parts: any[] = Array.isArray(content) ? content : [content];
  const texts = parts.map((part) => part?.text ?? part).filter((text) => typeof text === "string" && text.trim());
  if (texts.length) return preview(texts.map((text) => text.slice(0, 140)).join(" "));
  const fields = resolve(message.fields ?? null);
  const made = (fields ?? message).tool_calls;
  const calls = [...parts, ...(Array.isArray(made) ? made : [])];
  const names = calls.map((call) => call?.function?.name ?? call?.name).filter((name) => typeof name === "string");
  return names.length ? preview(`calls ${names.join(", ")}`) : preview(content || fields || "");
}

// A value in one line of a limited length, without formatting all of a large one.
const PREVIEW_CHARACTERS = 140;
export function preview(value: unknown, most = PREVIEW_CHARACTERS): string {
  let out = "";
  const full = () => out.length > most;
  const write = (item: any, depth: number): void => {
    if (full()) return;
    if (typeof item === "string") {
      const part = inLine(item.slice(0, most + 1));
      out += depth ? JSON.stringify(part).slice(0, most + 2) : part;
    } else if (item === null || typeof item !== "object") {
      out += String(item);
    } else if (depth > 20) {
      out += "…";
    } else if (Array.isArray(item)) {
      out += "[";
      for (let i = 0; i < item.length && !full(); i++) {
        if (i) out += ", ";
        write(item[i], depth + 1);
      }
      out += "]";
    } else if (Array.isArray(item.$set)) {
      write(item.$set, depth + 1);
    } else if (item.$blob) {
      out += `<${count(item.$blob.size ?? 0)} bytes>`;
    } else if (item.$append) {
      out += `<${count(item.$append.count ?? 0)} items of step ${item.$append.to}> + `;
      write(item.$append.items, depth + 1);
    } else {
      let first = true;
      out += depth ? "{" : "";
      for (const key of Object.keys(item)) {
        if (full()) break;
        out += (first ? "" : ", ") + inLine(key.slice(0, most)) + (depth ? ": " : "=");
        write(item[key], depth + 1);
        first = false;
      }
      out += depth ? "}" : "";
    }
  };
  write(value, 0);
  return full() ? out.slice(0, most - 1) + "…" : out;
}

// JSON, or else the text itself.
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
