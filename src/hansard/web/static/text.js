// Elements and texts. Recorded text is never interpreted: it only becomes text nodes.

const byId = (id) => document.getElementById(id);

// An element with attributes and children; a string child becomes a text node.
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) made.append(child);
  }
  return made;
}

// Replace an element's children, moving only those in another place: an unmoved child keeps its layout
// and its focus.
function hold(box, nodes) {
  const kept = new Set(nodes);
  for (const child of [...box.childNodes]) if (!kept.has(child)) child.remove();
  let next = box.firstChild;
  for (const node of nodes) {
    if (node === next) next = next.nextSibling;
    else box.insertBefore(node, next);
  }
}

// Elements of a list by key, built again when the sign of their content changes. A list that is not
// shown at a point must forget its elements, as their content changes meanwhile.
function keeper() {
  let kept = new Map();
  return {
    forget: () => kept.clear(),
    nodes(rows, keyOf, signOf, make) {
      const now = new Map();
      const out = rows.map((row) => {
        const [key, sign] = [keyOf(row), signOf(row)];
        const known = kept.get(key);
        const found = known?.sign === sign ? known : { sign, node: make(row) };
        now.set(key, found);
        return found.node;
      });
      kept = now;
      return out;
    },
  };
}

// Unprintable characters, and those that change the direction of the following text.
const UNSEEN =
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]|\r(?!\n)/g;
const escaped = (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0");
const shown = (text) => text.replace(UNSEEN, escaped);
const inLine = (text) => shown(text).replace(/\s+/g, " ");

// A recorded text as a separate element, to limit the effect of its direction.
const rec = (text, kind = "") => el("bdi", { class: ("rec " + kind).trim() }, inLine(String(text)));

const inThousands = new Intl.NumberFormat("en-US"); // created once, as this is slow
const count = (number) => inThousands.format(number);
const plural = (number, one, many = one + "s") => `${count(number)} ${number === 1 ? one : many}`;

function bytes(size) {
  let amount = size;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (amount < 1024) return unit === "B" ? `${count(amount)} B` : `${amount.toFixed(1)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms > 0 && ms < 0.05) return "<0.1 ms";
  if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(1)) : Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(2)} s`;
  const seconds = Math.floor(ms / 1000);
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${seconds % 60} s`;
}

// A time in us since 1970: UTC, to the microsecond or, shorter, to the second.
function moment(us, toSecond = false) {
  const iso = new Date(Math.floor(us / 1000)).toISOString();
  const day = iso.slice(0, 10) + " ";
  if (toSecond) return day + iso.slice(11, 19) + "Z";
  return day + iso.slice(11, 23) + String(us % 1000).padStart(3, "0") + "Z";
}

// A value in one line of a limited length, without formatting all of a large one.
const PREVIEW_CHARACTERS = 140;
function preview(value, most = PREVIEW_CHARACTERS) {
  let out = "";
  const full = () => out.length > most;
  const write = (item, depth) => {
    if (full()) return;
    if (typeof item === "string") {
      const part = inLine(item.slice(0, most + 1));
      out += depth ? JSON.stringify(part).slice(0, most + 2) : part;
    } else if (item === null || typeof item !== "object") {
      out += String(item);
    } else if (Array.isArray(item)) {
      out += "[";
      for (let i = 0; i < item.length && !full(); i++) {
        if (i) out += ", ";
        write(item[i], depth + 1);
      }
      out += "]";
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
