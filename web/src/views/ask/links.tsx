// Links from a run to the views that answer questions about it.

import { address } from "../../app/place";

const path = (run: string): string => `/runs/${encodeURIComponent(run)}`;

export function RunQuestions({ run, parent, at }: { run: string; parent?: string; at: string }) {
  return (
    <span class="chips questions">
      {parent && <a href={address(`${path(parent)}/diff/${encodeURIComponent(run)}`)}>compare with the parent</a>}
      <a href={address("/diff", { a: run })}>compare with another</a>
      <a href={address("/why", { of: run })}>decisions</a>
      <a href={address(`${path(run)}/bisect`)}>which step broke it</a>
      <a href={address(`${path(run)}/as`, { at })}>as a role sees it</a>
      <a href={address(`${path(run)}/change`, { at })}>go on from here</a>
      <a href={address("/audit", { run })}>audit</a>
    </span>
  );
}

export function OriginLink({ run, name, at }: { run: string; name: string; at?: string }) {
  return <a class="small" href={address(`${path(run)}/origin/${encodeURIComponent(name)}`, { at })}>Origin: who wrote and read it</a>;
}

export function WhyLink({ of }: { of: string }) {
  return <p><a class="small" href={address(`/why/${encodeURIComponent(of)}`)}>Why: inputs and consequences</a></p>;
}

// A link to change a value on record and go on from there: of a call, or at the address of its event.
export function ChangeLink({ run, edit, prompt, children }: { run: string; edit?: string; prompt?: string; children: string }) {
  return <p><a class="small" href={address(`${path(run)}/change`, { edit, prompt })}>{children}</a></p>;
}
