// Links from a run to the views that answer questions about it. A role has those that it may use; a file has none.

import { address, query } from "../../app/place";
import { useSource } from "../../app/reads";
import { isOperator } from "../../app/source";

const path = (run: string): string => `/runs/${encodeURIComponent(run)}`;

export function RunQuestions({ run, parent }: { run: string; parent?: string }) {
  const source = useSource();
  const { at } = query.value;
  return (
    <span class="chips questions">
      {isOperator.value && (
        <>
          {parent && <a href={address(`${path(parent)}/diff/${encodeURIComponent(run)}`)}>compare with the parent</a>}
          <a href={address("/diff", { a: run })}>compare with another</a>
          <a href={address(`${path(run)}/bisect`)}>which step broke it</a>
          <a href={address(`${path(run)}/as`, { at })}>as a role sees it</a>
          <a href={address(`${path(run)}/change`, { at })}>go on from here</a>
          <a href={source.link(`${path(run)}/file`) ?? undefined} title="One HTML file with all of the run, to be opened without a service">save as a file</a>
          <a href={source.link(`${path(run)}/file`, { redacted: true }) ?? undefined} title="The same without texts of arguments, results, messages and reasons: names, numbers, times and structure stay">save without texts</a>
        </>
      )}
      <a href={address("/why", { of: run })}>decisions</a>
      <a href={address("/audit", { run })}>audit</a>
    </span>
  );
}

export function OriginLink({ run, name, at }: { run: string; name: string; at?: string }) {
  return isOperator.value && <a class="small" href={address(`${path(run)}/origin/${encodeURIComponent(name)}`, { at })}>Origin: who wrote and read it</a>;
}

export function ResultLink({ run, step }: { run: string; step: string }) {
  return isOperator.value && <p><a class="small" href={address(`${path(run)}/result/${encodeURIComponent(step)}`)}>Where it came from, and what used the result</a></p>;
}

export function WhyLink({ of }: { of: string }) {
  return isOperator.value && <p><a class="small" href={address(`/why/${encodeURIComponent(of)}`)}>Why: inputs and consequences</a></p>;
}

// A link to change a value on record and go on from there: of a call, or at the address of its event.
export function ChangeLink({ run, edit, prompt, children }: { run: string; edit?: string; prompt?: string; children: string }) {
  return isOperator.value && <p><a class="small" href={address(`${path(run)}/change`, { edit, prompt })}>{children}</a></p>;
}
