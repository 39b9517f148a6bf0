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
let known: { isDark: boolean; colors: Record<string, string> } | null = null;
export function colors(names: string[]): Record<string, string> {
  if (known?.isDark === isDark.peek()) return known.colors;
  const probe = document.createElement("span");
  document.body.append(probe);
  const out: Record<string, string> = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    out[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  known = { isDark: isDark.peek(), colors: out };
  return out;
}
