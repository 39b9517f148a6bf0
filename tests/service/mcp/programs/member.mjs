// A member of a team, with the MCP client of npm: NODE_MODULES. Reads one JSON object a line, runs it
// with the client, and prints one answer each: connect {url, token}, call {tool, arguments},
// read {uri}, subscribe {uri}, heard {uri}: waits for an update of a URI, returns all updated URIs.
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const sdk = path.join(process.argv[2], "@modelcontextprotocol", "sdk", "dist", "esm");
const from = async (file) => import(pathToFileURL(path.join(sdk, file)));
const { Client } = await from("client/index.js");
const { StreamableHTTPClientTransport } = await from("client/streamableHttp.js");
const { ResourceUpdatedNotificationSchema } = await from("types.js");

const timeout = 8000; // a server that ended is noticed by nothing else: the client would reconnect
let client;
const updates = [];

const verbs = {
  connect: async ({ url, token }) => {
    client = new Client({ name: "member", version: "1" });
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      updates.push(params.uri);
    });
    const headers = { Authorization: `Bearer ${token}` };
    await client.connect(
      new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }),
    );
    return client.getServerVersion().name;
  },
  call: ({ tool, ...request }) =>
    client.callTool({ name: tool, arguments: request.arguments }, undefined, { timeout }),
  read: ({ uri }) => client.readResource({ uri }),
  subscribe: ({ uri }) => client.subscribeResource({ uri }),
  heard: async ({ uri }) => {
    while (!updates.includes(uri)) {
      await new Promise((wake) => setTimeout(wake, 50));
    }
    return [...new Set(updates)];
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { verb, ...request } = JSON.parse(line);
  let answer;
  try {
    answer = { result: await verbs[verb](request) };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
