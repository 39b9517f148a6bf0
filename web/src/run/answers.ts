// Answers about one run, as of the commands of the same names with `--json`.

export interface Failure {
  type?: string;
  message?: string;
  arguments?: unknown;
}

// A time, and the clock that it is of.
export interface Stated {
  at: string | null;
  clock: string;
}

export type Assigned = { experiment?: string; arm?: string; task?: string; trial?: number | null };

export interface Life {
  run: string;
  position: number;
  time?: string | null; // of the newest commit
  workflow: string;
  status: string;
  program?: string;
  conversation?: string | null;
  labels?: Record<string, string>;
  assigned?: Assigned | null;
  scores?: Record<string, number>;
  error?: Failure | null;
  forked?: { parent: string; effects?: string } | null;
  agents: Record<string, string>;
  at_work?: string[];
  began?: Stated | null;
  imported?: { at: string; hasTimes: boolean } | null; // in a file
  log?: string; // in a file
}

export interface AgentFigures {
  agent: string;
  role: string;
  version: number;
  left: string | null;
  steps: Record<string, number>;
  open_steps: { step: string; tool: string; status: string }[];
  checkpoints: Record<string, unknown> | null; // of a role they are not known
  decisions: { question: string; selected: string }[];
  messages: number;
  context_tokens: number | null;
}

export interface RunAnswer {
  run: Life;
  agents: AgentFigures[];
}

export interface EventAnswer {
  address: string;
  id: string;
  type: string;
  time: string | null;
  written: string | null;
  occurred_at?: string | null;
  stream: string;
  version: number;
  agent: string;
  quarantined?: string;
  is_inside?: boolean; // not the end of its commit and transaction
  origin?: { log: string; position: number; at: string } | null;
  more?: Record<string, unknown>; // rare fields of the commit
  data: Record<string, any>;
  [onRecord: string]: unknown; // shown as they are
}

export interface Message {
  kind: "message" | "summary";
  role: string;
  message: Record<string, any>;
  tokens: number | null;
  position: number;
  version: number;
  messages?: number; // number that a summary replaces
  address?: string; // in a file
}

export interface ContextAnswer {
  messages: Record<string, Message[]>;
}

export interface Key {
  key: string;
  kind: string | null;
  version: number;
  author: string;
  role: string;
  labels: Record<string, string>;
  expires: string | null;
  event?: string; // id of the event that set it
  value: unknown;
  address?: string; // of that event, in a file
  change?: "" | "new" | "changed" | "removed" | "expired"; // by the event at the point, in a file
}

export interface BoardAnswer {
  keys: Key[];
  isEver?: boolean; // in a file: the run wrote a key at some point
}

export interface Task {
  id: string;
  title: string;
  status: string;
  role: string;
  agent: string;
  holder: string;
  number: number;
  by: string;
  waits_for: (string | number)[];
  blocked_by: (string | number)[];
  lease_left_s: number | null;
  because: string;
  error: string;
  expires?: number | null;
  what?: unknown;
  given?: unknown;
  result?: unknown;
  change?: Key["change"];
}

export interface TasksAnswer {
  tasks: Record<string, Task>;
  isEver?: boolean;
}

export interface Change {
  path: (string | number)[];
  change: string;
  before?: unknown;
  after?: unknown;
  agent?: string | null;
}

export interface ChangesAnswer {
  changes: Change[];
}
