// Texts. Recorded text is never interpreted: it only becomes text, with unprintable characters written
// as escapes.

// Unprintable characters, and those that change the direction of the following text.
const UNSEEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]|\r(?!\n)/g;
const escaped = (char: string) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
export const printable = (text: string): string => text.replace(UNSEEN, escaped);
export const inLine = (text: string): string => printable(text).replace(/\s+/g, " ");

const thousands = new Intl.NumberFormat("en-US"); // created once, as this is slow
export const count = (number: number): string => thousands.format(number);
export const plural = (number: number, one: string, many = one + "s"): string => `${count(number)} ${number === 1 ? one : many}`;

export function bytes(size: number): string {
  let amount = size;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (amount < 1024) return unit === "B" ? `${count(amount)} B` : `${amount.toFixed(1)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

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
