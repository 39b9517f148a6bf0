// All views. To add one: a folder or module here with a default-exported component that takes `ViewProps`,
// and its line in VIEWS. `web/README.md` has an example.

import type { ComponentType } from "preact";
import { decoded } from "../app/place";
import type { Source } from "../app/source";
import { ASK } from "./ask";

export interface ViewProps {
  params: Record<string, string>; // parts of the path, decoded
  source: Source;
}

export interface View {
  path: string; // below the workspace; ":name" is a part, as in "/runs/:run"
  title: string; // of the window, and in the palette
  isTrusted?: boolean; // for the operator alone: no role may read it
  nav?: string; // label in the navigation; without one the view is reached by links
  keys?: string; // opens it from anywhere
  load: () => Promise<{ default: ComponentType<ViewProps> }>;
}

// The first that matches is shown. The order is that of the navigation.
export const VIEWS: View[] = [
  { path: "/runs", title: "Runs", nav: "Runs", keys: "g r", load: () => import("./runs") },
  { path: "/runs/:run", title: "Run", load: () => import("./run") },
  ...ASK,
];

export function match(path: string): { view: View; params: Record<string, string> } | null {
  const parts = path.split("/");
  for (const view of VIEWS) {
    const names = view.path.split("/");
    if (names.length !== parts.length) continue;
    const params: Record<string, string> = {};
    const fits = names.every((name, index) => {
      if (!name.startsWith(":")) return name === parts[index];
      params[name.slice(1)] = decoded(parts[index]);
      return parts[index] !== "";
    });
    if (fits) return { view, params };
  }
  return null;
}
