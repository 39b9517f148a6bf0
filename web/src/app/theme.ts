// Light, dark or as the system: remembered in this browser.

import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "hansard-theme";

// Texts that this browser keeps. Where storage is refused, as it may be for a file, none is kept.
export function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function store(key: string, text: string): void {
  try {
    localStorage.setItem(key, text);
  } catch {
    // it holds until the page is left
  }
}

const kept = stored(KEY);
export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : "system");
export const isDark = signal(false);
const system = matchMedia("(prefers-color-scheme: dark)");

export function startTheme(): void {
  const follow = () => (isDark.value = theme.value === "dark" || (theme.value === "system" && system.matches));
  effect(() => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
    follow();
    store(KEY, theme.value);
  });
  system.addEventListener("change", follow);
}

export function nextTheme(): void {
  theme.value = theme.value === "system" ? "dark" : theme.value === "dark" ? "light" : "system";
}

// Colors by name for a canvas, as the browser computes them in this theme.
const known = new Map<string, string>();
export function colors(names: string[]): Record<string, string> {
  const probe = document.createElement("span");
  const colorOf = (name: string): string => {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const key = (name: string): string => `${name} ${isDark.peek()}`;
  for (const name of names) if (!known.has(key(name))) known.set(key(name), colorOf(name));
  probe.remove();
  return Object.fromEntries(names.map((name) => [name, known.get(key(name))!]));
}
