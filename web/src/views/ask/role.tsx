// A run as a role sees it. Each look is a served view, which is on record.

import { address, go, query } from "../../app/place";
import { useRead } from "../../app/reads";
import { Chip, Empty, Failed, Rec, Select, Shown, Time } from "../../ui/pieces";
import { VirtualList } from "../../ui/list";
import { plural, preview } from "../../ui/text";
import type { ViewProps } from "..";
import { Field, Page, RunLink, runPath, Value } from "./parts";

interface Shown_ { id: string; type: string; at: string; agent: string; role: string; key: string | null; data: any }

export default function RoleView({ params }: ViewProps) {
  const { run, role } = params;
  const { at } = query.value;
  const roles = useRead<string[]>("/record/roles/viewable");
  const read = useRead<any>(role ? "/record/roles/view" : null, { run, role, at });
  const names = [...new Set([...(role ? [] : [""]), ...(roles.data ?? []), ...(role ? [role] : [])])];
  return (
    <Page title={role ? `${run} as ${role}` : `${run} as a role`} heading={role ? <>As role <Rec text={role} /> sees it</> : "As a role sees it"} note={<>Run <RunLink run={run} at={at} />. Each look is a served view: it is put on record, with you as the reader.</>} fields={
      <>
        <Select label="Role" value={role ?? ""} options={names.map((each) => [each, each || "choose one"])} set={(name) => go(`${runPath(run)}/as/${encodeURIComponent(name)}`, { at })} />
        <Field name="at" label="At" placeholder="now" />
      </>
    }>
      {roles.problem && <Failed problem={roles.problem} again={roles.reload} />}
      {roles.data && !roles.data.length && <Empty>No role has rules, so there is no view to show: <code>hansard roles apply FILE</code> sets some.</Empty>}
      {role && roles.data && !roles.data.includes(role) && <p class="note">No rules of this role are on record, or you may not see them.</p>}
      {role && roles.data?.length !== 0 && <Shown read={read}>{(view) => <View view={view} />}</Shown>}
    </Page>
  );
}

function View({ view }: { view: any }) {
  const events: [number, Shown_][] = view.events;
  const { agents = {}, board = {}, context = [] } = view.state;
  return (
    <>
      <p role="status"><strong>{plural(events.length, "event")}</strong> of the run {events.length === 1 ? "is" : "are"} visible to the role{events.length ? ", with numbers of its own" : ": it sees nothing"}.</p>
      {Object.keys(board).length > 0 && <><h2>Shared state</h2><dl class="facts card">{Object.entries(board).map(([key, entry]: [string, any]) => <div key={key}><dt><Rec text={key} /></dt><dd><Value value={"value" in entry ? entry.value : entry} />{entry.is_whole === false && <span class="dim">part of it is hidden</span>}</dd></div>)}</dl></>}
      {Object.keys(agents).length > 0 && <><h2>Agents</h2><div class="chips">{Object.entries(agents).map(([name, agent]: [string, any]) => <Chip key={name}>{name} ({agent.role})</Chip>)}</div></>}
      {Array.isArray(context) && context.length > 0 && <><h2>{plural(context.length, "message")} of its context</h2><Value value={context} /></>}
      {events.length > 0 && <h2>Events</h2>}
      {events.length > 0 && (
        <div class="scroll role-events">
          <VirtualList size={events.length} height={30} label="visible events" row={(index, place) => {
            const [number, event] = events[index];
            return <div {...place} class="vrow" role="listitem"><span class="mono dim">{number}</span> <Chip>{event.type.replace(/\.v\d+$/, "")}</Chip> <span class="dim"><Rec text={event.agent} /></span> <span class="cut"><Rec text={preview(event.data, 160)} /></span> <Time iso={event.at} /></div>;
          }} />
        </div>
      )}
      <p class="note">{view.digest && `Digest ${view.digest}. `}<a href={address("/sql", { q: "FROM views_served ORDER BY position DESC" })}>Served views in SQL</a></p>
    </>
  );
}
