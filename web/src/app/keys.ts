// Keys and commands. A view registers its own with `useCommands`; `?` lists them and the palette runs
// them. Keys are tinykeys': "j", "Shift+ArrowLeft", "g r" (one after the other), "$mod+k".

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { createKeybindingsHandler } from "tinykeys";

export interface Command {
  title: string;
  run: (event?: KeyboardEvent) => void;
  keys?: string[]; // the first is the one listed
  group?: string; // heading in the list of keys
  isHidden?: boolean; // listed, but no command of the palette
  inFields?: boolean; // also while a text is typed
  when?: (event: KeyboardEvent) => boolean; // else the key is left to others
}

const layers = signal<Command[][]>([]);
export const commands = (): Command[] => layers.value.flat();

export const isText = (target: EventTarget | null): boolean =>
  target instanceof Element &&
  (target.matches("input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select") ||
    target.closest("[contenteditable=true]") !== null);
// (In a shadow root, as of the editor, the path has the field, and the event's target the root's host.)

// A control that has an effect of its own at Enter.
export const isControl = (target: EventTarget | null): boolean => target instanceof Element && target.closest("a, button, summary, input, select, textarea, [role=tab], [role=tree]") !== null;

export const isDialogOpen = (): boolean => document.querySelector("dialog[open]") !== null;

type Handler = (event: KeyboardEvent) => void;
const handlers: Handler[] = []; // of the frame first: the last that knows a key takes it
document.addEventListener("keydown", (event) => {
  for (const handler of [...handlers].reverse()) if (!event.defaultPrevented) handler(event);
  const typed = event.composedPath()[0];
  if (event.key === "Escape" && !event.defaultPrevented && isText(typed) && !isDialogOpen() && (typed as Element).matches("input, select, textarea")) (typed as HTMLElement).blur();
});

// Signs need Shift, Option or AltGr on some keyboards, which the event's key has taken into account.
const isSign = (press: string): boolean => /^[^\w\s]$/.test(press);
const anyKeyboard = (key: string): string => key.split(" ").map((press) => (isSign(press) ? `[Shift]+[Alt]+[Control]+${press}` : press)).join(" ");

// The commands of a component, while it is shown. A view's take a key before those of the frame.
export function useCommands(list: Command[], isFrame = false): void {
  const newest = useRef(list);
  newest.current = list;
  const shape = list.map((each) => `${each.title}|${each.keys?.join(",")}`).join("\n");
  useEffect(() => {
    const mine = newest.current.map((each, index) => ({ ...each, run: (event?: KeyboardEvent) => newest.current[index]?.run(event) }));
    const bindings: Record<string, Handler> = {};
    for (const each of mine) {
      for (const key of each.keys ?? []) {
        bindings[anyKeyboard(key)] = (event) => {
          if (!each.inFields && (isText(event.composedPath()[0]) || isDialogOpen())) return;
          if (each.when?.(event) === false) return;
          if (isSign(event.key) && event.ctrlKey && !event.getModifierState("AltGraph")) return;
          event.preventDefault();
          each.run(event);
        };
      }
    }
    const handler = createKeybindingsHandler(bindings, { ignore: () => false }) as Handler;
    layers.value = isFrame ? [mine, ...layers.value] : [...layers.value, mine];
    handlers.splice(isFrame ? 0 : handlers.length, 0, handler);
    return () => {
      handlers.splice(handlers.indexOf(handler), 1);
      layers.value = layers.value.filter((layer) => layer !== mine);
    };
  }, [shape]);
}

// The links and buttons of a view's lists, one after the other.
const ITEMS = "tbody :is(a, button), .hits div > a:first-child, .findings a, .card, .tree :is(summary, a), a.node";
const WAITING = "#content .note.waiting";
let stopWaiting = (): void => undefined;
export function focusItem(step: 1 | -1): void {
  stopWaiting();
  const items = [...document.querySelectorAll<HTMLElement>(`#content :is(${ITEMS})`)].filter((each) => each.checkVisibility());
  if (!items.length && document.querySelector(WAITING)) return whenShown(() => focusItem(step));
  const here = document.activeElement;
  const at = items.findLastIndex((each) => each === here || each.contains(here));
  const next = at < 0 ? (step > 0 ? items[0] : items.at(-1)) : items[Math.max(0, Math.min(items.length - 1, at + step))];
  if (next?.matches(".card")) next.tabIndex = -1;
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

// Once no answer is waited for, unless another key or a click is first.
function whenShown(run: () => void): void {
  const stop = new AbortController();
  const observer = new MutationObserver(() => document.querySelector(WAITING) === null && run());
  observer.observe(document.body, { childList: true, subtree: true });
  stopWaiting = () => {
    observer.disconnect();
    stop.abort();
  };
  for (const event of ["keydown", "pointerdown"]) addEventListener(event, () => stopWaiting(), { capture: true, signal: stop.signal });
}

export function focusField(): void {
  const field = document.querySelector<HTMLElement>("#content input[type=search], #content .editor") ?? document.querySelector<HTMLElement>("#content :is(input:not([type=checkbox], [type=range]), textarea)");
  (field?.shadowRoot?.querySelector<HTMLElement>(".cm-content") ?? field?.querySelector<HTMLElement>(".cm-content") ?? field)?.focus();
  if (field instanceof HTMLInputElement) field.select();
}

const NAMES: Record<string, string> = {
  ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", $mod: /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl", Escape: "Esc",
};
export const keyText = (key: string): string[] =>
  (NAMES[key] ?? key).split(" ").map((press) => press.split("+").map((part) => NAMES[part] ?? part).join("+"));
