// Answers for a role have another form: what the role sees, and nothing else. Here they take the form that
// panels read; what a role is not shown stays empty.

import type { Outline } from "./outline";
import type { AgentFigures, BoardAnswer, ContextAnswer, EventAnswer, Key, RunAnswer } from "./answers";

type Facts = Record<string, any>;

export function runShown(answer: any, outline: Outline): RunAnswer {
  if (Array.isArray(answer.agents)) return answer;
  const agents = Object.entries<Facts>(answer.agents ?? {}).map(([agent, facts]): AgentFigures => ({
    agent,
    role: facts.role ?? "",
    version: 0, // is not shown
    left: facts.outcome ?? null,
    steps: facts.steps ? { calls: facts.steps } : {},
    open_steps: [],
    checkpoints: null,
    decisions: (outline.agentNamed(agent)?.decisions.slice(0, facts.decisions ?? 0) ?? []).map((number) => ({ question: outline.names[number], selected: (outline.texts[number] ?? "").split(" → ").at(-1)! })),
    messages: facts.messages ?? 0,
    context_tokens: null,
  }));
  return { run: answer.run, agents };
}

export function eventShown(answer: any): EventAnswer {
  if (answer.address) return answer;
  const { number, id, type, at, agent, key, data, occurred_at } = answer;
  return { address: `${number}.0`, id, type, time: at, written: at, occurred_at, stream: key || (type.startsWith("run.") ? "life" : agent), version: 0, agent: agent ?? "", data };
}

export function boardShown(answer: any): BoardAnswer {
  if (Array.isArray(answer.keys)) return answer;
  const keys = Object.entries<Facts>(answer.keys ?? {}).map(([key, facts]): Key => ({
    key,
    kind: facts.kind ?? "value",
    version: 0, // is not shown
    author: facts.agent ?? "",
    role: facts.role ?? "",
    labels: {},
    expires: null,
    value: facts.value ?? null,
  }));
  return { keys };
}

export function contextShown(answer: any): ContextAnswer {
  const messages: ContextAnswer["messages"] = {};
  for (const [agent, list] of Object.entries<any[]>(answer.messages ?? {})) {
    messages[agent] = list.map((each, index) => each.message ? each : { kind: "message", role: each.role ?? "", message: each, tokens: null, position: 0, version: index + 1 });
  }
  return { messages };
}
