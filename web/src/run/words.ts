// Words for events and items, from the outline alone.

import type { Outline } from "./outline";

export const GLYPHS: Record<string, string> = { step: "ƒ", message: "❝", decision: "◆", checkpoint: "⚑", run: "●", other: "·" };

const spaced = (type: string): string => type.replaceAll(/[._]/g, " ");

// Name of an item: of its tool, role, question or checkpoint; of another event its type.
export function titleOf(outline: Outline, item: number): string {
  const first = outline.first[item];
  return outline.names[first] || (outline.kindOfItem(item) === "step" ? "step" : spaced(outline.typeName(first)));
}

// Content of an item, in one line: its first words without the name that they begin with.
export function gistOf(outline: Outline, item: number): string {
  const first = outline.first[item];
  const [name, text] = [outline.names[first], outline.texts[first] ?? ""];
  if (!name || !text.startsWith(name)) return text;
  const rest = text.slice(name.length);
  const kind = outline.kindOfItem(item);
  if (kind === "step") return rest.replace(/^\(|\)$/g, "");
  return kind === "message" ? rest.replace(/^: ?/, "") : rest.trimStart();
}

// An event in a few words.
export function headline(outline: Outline, number: number): string {
  const item = outline.item[number];
  const what = spaced(outline.typeName(number).split(".").slice(1).join("."));
  const kind = outline.kindOfItem(item);
  if (kind === "step") return `step ${outline.step[number]} ${titleOf(outline, item)}, ${what}`;
  return kind === "run" || kind === "other" ? titleOf(outline, item) : `${kind} ${titleOf(outline, item)}`;
}

// The version of an event in its stream, in words: its number among the events of an agent, a key or a run.
export const VERSION = "The number of this event among those of its agent, key or run";
export const versionName = ({ stream, version }: { stream: string; version: number }): string => `${/^agent\//.test(stream) ? stream.split("/").at(-1) : stream}${version ? ` version ${version}` : ""}`;
