// The frame of the served page: navigation, and the view of the address.

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failed, Waiting } from "../ui/pieces";
import { VIEWS, match, type ViewProps } from "../views";
import { address, go, path, place } from "./place";
import { Boundary, Dialogs, Ends, title, useFrame } from "./shell";
import { isOperator, Problem, type Source } from "./source";

const loaded = new Map<string, ComponentType<ViewProps>>(); // by path of the view

// Views of the navigation that the caller may use.
const shownViews = () => VIEWS.filter((view) => view.nav && (isOperator.value || !view.isTrusted));

function Content({ source }: { source: Source }) {
  const hit = match(path.value);
  const [, redraw] = useState(0);
  const [failed, setFailed] = useState(""); // the view whose part did not load
  const key = hit?.view.path ?? "";
  useEffect(() => {
    if (!hit || loaded.has(key)) return;
    hit.view.load().then(
      (part) => {
        loaded.set(key, part.default);
        redraw((now) => now + 1);
      },
      () => setFailed(key),
    );
  }, [key]);
  if (!hit) return <div class="view"><h1>No such view</h1><Failed problem={new Problem(404, "Not found", path.value, `The views are: ${shownViews().map((view) => view.nav).join(", ")}.`)} /></div>;
  if (failed === key) return <Failed problem={new Problem(0, "A part of this page did not load", hit.view.title, "Reload the page: the server may have a newer version.")} again={() => location.reload()} />;
  const Part = loaded.get(key);
  if (!Part) return <Waiting />;
  const shown = Object.values(hit.params).join(" ");
  return <Boundary key={`${key} ${shown}`}><Part params={hit.params} source={source} /></Boundary>;
}

export function Shell({ source }: { source: Source }) {
  const views = shownViews();
  useEffect(() => {
    const name = title.value || match(path.value)?.view.title || "";
    document.title = [name, place.value.workspace, "Hansard"].filter(Boolean).join(" · ");
  }, [title.value, path.value]);
  useEffect(() => document.querySelector("#top nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" }), [path.value]);
  useFrame([
    ...views.map((view) => ({ title: `Go to ${view.title}`, keys: view.keys ? [view.keys] : [], run: () => go(view.path), group: "Go to" })),
    { title: "Log out", run: () => location.assign("/logout"), group: "Page" },
  ]);
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to the content</a>
      <header id="top">
        <a class="brand" href={address("/runs")}>Hansard</a>
        <span class="workspace" title="Workspace"><bdi>{place.value.workspace}</bdi></span>
        <nav aria-label="Views">
          {views.map((view) => (
            <a key={view.path} href={address(view.path)} aria-current={path.value === view.path || path.value.startsWith(`${view.path}/`) ? "page" : undefined}>{view.nav}</a>
          ))}
        </nav>
        <Ends />
      </header>
      <main id="content" tabIndex={-1}><Content source={source} /></main>
      <Dialogs />
    </>
  );
}
