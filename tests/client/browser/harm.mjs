// A device at each of several servers that harm, one after the other: how each ended, and the most memory in KiB.
//   node harm.mjs MODULES DIRECTORY URL COUNT KIND
import {readFileSync} from "node:fs";

const [modules, directory, url, count, kind] = process.argv.slice(2);
if (kind === "browser") globalThis.WebSocket = (await import(`${modules}/node_modules/ws/wrapper.mjs`)).WebSocket;
const {Device} = await import(`${modules}/index.js`);
const octets = (name) => new Uint8Array(readFileSync(`${directory}/${name}`)).buffer;
const data = {x: new Float32Array(octets("x")), y: new Int32Array(octets("y")), shape: [1, 8, 8]};

for (let number = 0; number < Number(count); number++) {
  const device = new Device({server: `${url}/${number}`, name: "pi", data, patience: 0.5, quiet: 0.5});
  console.log(JSON.stringify(await device.start()));
}
// Not resourceUsage().maxRSS: it begins with that of the process that has started node.
const peak = Number(/VmHWM:\s*(\d+) kB/.exec(readFileSync("/proc/self/status", "latin1"))[1]);
console.log(JSON.stringify({peak}));
process.stdout.write("", () => process.exit(0));
