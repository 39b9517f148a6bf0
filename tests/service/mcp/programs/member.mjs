// One of a team, with npm's client of MCP: NODE_MODULES. It reads a JSON object a line, does what it
// says with the client, and answers with one: connect {url, token}, call {tool, arguments},
// read {uri}, subscribe {uri}, heard {wanted}: once it was told of an address, all it was told of.
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
const told = [];

const verbs = {
  connect: async ({ url, token }) => {
    client = new Client({ name: "member", version: "1" });
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      told.push(params.uri);
    });
    const headers = { Authorization: `Bearer ${token}` };
    await client.connect(
      new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }),
    );
    return client.getServerVersion().name;
  },
  call: ({ tool, ...given }) =>
    client.callTool({ name: tool, arguments: given.arguments }, undefined, { timeout }),
  read: ({ uri }) => client.readResource({ uri }),
  subscribe: ({ uri }) => client.subscribeResource({ uri }),
  heard: async ({ wanted }) => {
    while (!told.includes(wanted)) {
      await new Promise((wake) => setTimeout(wake, 50));
    }
    return [...new Set(told)];
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { verb, ...given } = JSON.parse(line);
  let answer;
  try {
    answer = { result: await verbs[verb](given) };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
