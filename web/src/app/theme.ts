// Light, dark or as the system: remembered in this browser.

import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "hansard-theme";

function stored(): Theme {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system"; // storage is refused, as it may be for a file
  }
}

export const theme = signal<Theme>(stored());
export const isDark = signal(false);
const system = matchMedia("(prefers-color-scheme: dark)");

export function startTheme(): void {
  const follow = () => (isDark.value = theme.value === "dark" || (theme.value === "system" && system.matches));
  effect(() => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
    follow();
    try {
      if (theme.value === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, theme.value);
    } catch {
      // it holds until the page is left
    }
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
