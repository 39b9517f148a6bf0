// The views that answer questions, each loaded when it is opened.

import type { View } from "..";

export const ASK: View[] = [
  { path: "/inbox", title: "Inbox", nav: "Inbox", keys: "g i", load: () => import("./inbox") },
  { path: "/search", isTrusted: true, title: "Search", nav: "Search", keys: "g /", load: () => import("./search") },
  { path: "/audit", title: "Audit", nav: "Audit", keys: "g a", load: () => import("./audit") },
  { path: "/experiments", title: "Experiments", nav: "Experiments", keys: "g e", load: () => import("./experiments") },
  { path: "/experiments/:name", title: "Experiment", load: () => import("./experiments").then((part) => ({ default: part.ExperimentView })) },
  { path: "/prompts", title: "Prompts", nav: "Prompts", keys: "g p", load: () => import("./prompts") },
  { path: "/prompts/:name", title: "Prompt", load: () => import("./prompts").then((part) => ({ default: part.PromptView })) },
  { path: "/memory", isTrusted: true, title: "Memory", nav: "Memory", keys: "g m", load: () => import("./memory") },
  { path: "/sql", title: "SQL", nav: "SQL", keys: "g s", load: () => import("./sql") },
  { path: "/diff", isTrusted: true, title: "Compare two runs", nav: "Diff", keys: "g d", load: () => import("./diff").then((part) => ({ default: part.PickRuns })) },
  { path: "/runs/:run/diff/:other", title: "Two runs", load: () => import("./diff") },
  { path: "/why", title: "Why", nav: "Why", keys: "g w", load: () => import("./why") },
  { path: "/why/:of", title: "Why", load: () => import("./why") },
  { path: "/runs/:run/bisect", title: "Which step broke it", load: () => import("./bisect") },
  { path: "/runs/:run/as", title: "As a role sees it", load: () => import("./role") },
  { path: "/runs/:run/as/:role", title: "As a role sees it", load: () => import("./role") },
  { path: "/runs/:run/change", title: "Change and go on", load: () => import("./change") },
  { path: "/runs/:run/origin/:key", title: "Origin of a value", load: () => import("./origin") },
  { path: "/runs/:run/result/:step", title: "Origin of a result", load: () => import("./origin").then((part) => ({ default: part.ResultView })) },
];
