// Missing and odd things of the record or of one run, worst first, with what each check looked at.

import { query } from "../../app/place";
import { useRead } from "../../app/reads";
import { Pill, Rec, Shown } from "../../ui/pieces";
import { grouped, plural } from "../../ui/text";
import { Choice, EventLink, Field, Page, type Lines, ofKind, RunLink, Table } from "./parts";

interface Finding {
  view: string; kind: string; run: string | null; agent: string | null; step: number | null; address: string | null; fact: string; topic: string;
  severity: string; experiment: string | null; question: string; next: string; what: string; evidence: { run: string; address: string }[];
}
interface Looked { topic: string; experiment: string | null; looked: number; what: string; findings: number; why_not: string | null }

const SHOWN_MAX = 20; // findings of one kind shown before all are opened

export default function AuditView() {
  const { run, kind, severity, experiment } = query.value;
  const read = useRead<Lines>("/audit", { run, kind, severity, experiment });
  return (
    <Page title="Audit" heading="Audit" note="Calls without an outcome, refusals that ran, close decisions, costs that do not add up, and trials that contradict themselves. A finding is a place to look, not a verdict." fields={
      <>
        <Field name="run" label="Run" placeholder="all" />
        <Field name="kind" label="Topic" placeholder="all" />
        <Choice name="severity" label="Severity" options={[["", "all"], ["high", "high"], ["medium", "medium or worse"]]} />
        <Field name="experiment" label="Experiment" placeholder="all" />
      </>
    }>
      <Shown read={read}>{(data) => <Findings lines={data.lines} />}</Shown>
    </Page>
  );
}

function Findings({ lines }: { lines: any[] }) {
  const findings: Finding[] = ofKind(lines, "finding");
  const summary = ofKind(lines, "audited")[0];
  const groups = grouped(findings, (each) => `${each.severity} ${each.topic} ${each.what} ${each.experiment ?? ""}`);
  const looked: Looked[] = summary?.looked ?? [];
  return (
    <>
      <p role="status"><strong>{plural(findings.length, "finding")}</strong>{summary?.less_severe ? `, and ${summary.less_severe.toLocaleString("en-US")} less severe that the filter hides` : ""}.</p>
      {[...groups].map(([key, group]) => <FindingGroup key={key} group={group} />)}
      <h2>Checks</h2>
      <Table label="checks" rows={looked} rowKey={(each) => `${each.topic} ${each.experiment}`} columns={[
        { name: "topic", cell: (each) => <Rec text={each.topic} /> },
        { name: "experiment", cell: (each) => each.experiment && <Rec text={each.experiment} /> },
        { name: "looked at", cell: (each) => `${each.looked.toLocaleString("en-US")} ${each.what}` },
        { name: "findings", cell: (each) => (each.why_not ? <span class="dim">not checked: <Rec text={each.why_not} /></span> : each.findings.toLocaleString("en-US")) },
      ]} />
    </>
  );
}

function FindingGroup({ group }: { group: Finding[] }) {
  const first = group[0];
  const list = (part: Finding[]) => (
    <ul class="findings">
      {part.map((each, index) => (
        <li key={index}>
          <p><Rec text={each.fact} /></p>
          <p class="dim">
            {each.run && <>run <RunLink run={each.run} /> </>}
            {each.evidence.map((at) => <EventLink key={`${at.run} ${at.address}`} run={at.run} at={at.address}>{`event ${at.address}`}</EventLink>)}
            {each.next && <code><Rec text={each.next} /></code>}
          </p>
        </li>
      ))}
    </ul>
  );
  return (
    <section class="card">
      <header><Pill status={first.severity} /> <strong><Rec text={first.what} /></strong> <span class="dim">{first.topic} · {plural(group.length, "finding")}{first.experiment && <> · experiment <Rec text={first.experiment} /></>}</span></header>
      <p class="dim"><Rec text={first.question} /></p>
      {list(group.slice(0, SHOWN_MAX))}
      {group.length > SHOWN_MAX && <details><summary>{plural(group.length - SHOWN_MAX, "more finding")}</summary>{list(group.slice(SHOWN_MAX))}</details>}
    </section>
  );
}
