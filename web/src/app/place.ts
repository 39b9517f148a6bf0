// The address: every view is one. Over HTTP it is /ws/WORKSPACE/PATH?QUERY; in a file it is the part
// after `#`, as a file has one path.

import { computed, signal } from "@preact/signals";
import { present, queryText, type Query } from "./source";

export interface Place {
  workspace: string;
  path: string; // such as /runs/RUN
  query: Record<string, string>;
}

// A part of a path; as it is if its escapes are malformed, as of an address typed by hand.
export function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

let home: { workspace: string; path: string } | null = null; // of a file

function read(): Place {
  if (home) {
    const [path, query = ""] = location.hash.startsWith("#/") ? location.hash.slice(1).split("?") : [home.path, location.hash.slice(1)];
    return { workspace: home.workspace, path, query: Object.fromEntries(new URLSearchParams(query)) };
  }
  const [, , workspace = "", ...rest] = location.pathname.split("/");
  return {
    workspace: decoded(workspace),
    path: `/${rest.join("/")}`.replace(/(.)\/$/, "$1"),
    query: Object.fromEntries(new URLSearchParams(location.search)),
  };
}

export const place = signal<Place>(read());
export const path = computed(() => place.value.path);
export const query = computed(() => place.value.query);

// The page is a file about one run: its addresses are fragments.
export function inFile(workspace: string, at: string): void {
  home = { workspace, path: at };
  place.value = read();
}

// Address of a view of this workspace, for `href`.
export function address(to: string, values: Query = {}): string {
  if (home) return `#${to === home.path ? queryText(values).slice(1) : `${to}${queryText(values)}`}`;
  return `/ws/${encodeURIComponent(place.value.workspace)}${to}${queryText(values)}`;
}

export function go(to: string, values: Query = {}, { replace = false } = {}): void {
  visit(address(to, values), replace);
}

function visit(href: string, replace = false): void {
  settle();
  if (replace) history.replaceState(null, "", href);
  else history.pushState(null, "", href);
  place.value = read();
  if (!replace) scrollTo(0, 0);
}

const ADDRESS_MS = 400; // browsers limit the rate of changes of the address
let timer = 0;
let pending: Query = {};

// Write the pending query before another address follows: the timer would add it to that one.
function settle(): void {
  if (timer) history.replaceState(null, "", address(place.value.path, pending));
  drop();
}

function drop(): void {
  clearTimeout(timer);
  timer = 0;
}

// Change some of the query and keep the rest; an empty value removes one. The address follows at rest.
export function setQuery(changes: Query): void {
  const next = present({ ...place.value.query, ...changes });
  if (queryText(next) === queryText(place.value.query)) return; // a run that is followed stays without a point
  place.value = { ...place.value, query: next };
  pending = next;
  drop();
  timer = window.setTimeout(settle, ADDRESS_MS);
}

function followLinks(event: MouseEvent): void {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element).closest?.("a[href]") as HTMLAnchorElement | null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (home || !link.pathname.startsWith("/ws/")) return;
  event.preventDefault();
  visit(link.href); // read before the pending query is written, against which a part of one is read
}

export function listen(): void {
  for (const event of ["popstate", "hashchange"]) addEventListener(event, () => {
    drop();
    place.value = read();
  });
  document.addEventListener("click", followLinks);
}
