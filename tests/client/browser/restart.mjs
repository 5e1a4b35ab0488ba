// A device that is stopped as it is about to push, and one that goes on where it was.
//   node restart.mjs MODULES DIRECTORY SERVER TOKEN
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";

const [modules, directory, server, token] = process.argv.slice(2);
const {Device, identityOf, forget, memoryStorage} = await import(`${modules}/index.js`);
const octets = (name) => new Uint8Array(readFileSync(`${directory}/${name}`)).buffer;
const data = {x: new Float32Array(octets("x")), y: new Int32Array(octets("y")), shape: [1, 8, 8]};
const kept = memoryStorage();
const saved = [];

/** Run until `isOver(saves)`, which is asked as each update is stored, before it is sent. */
async function run(isOver, options = {}) {
  const first = saved.length;
  const storage = {
    ...kept,
    async set(key, value) {
      await kept.set(key, value);
      if (key.startsWith("update ")) saved.push(await kept.get(key));
      if (isOver(saved.length - first)) device.stop();
    },
  };
  const events = [];
  const device = new Device({server, data, storage, onEvent: (event) => events.push(event), ...options});
  const {why, reason} = await device.start();
  assert.equal(why, "stopped", reason);
  return events.filter(({kind}) => kind === "step").length;
}

assert.equal(await identityOf(server, kept), null);
const receipts = [await run((saves) => saves === 4, {token, name: "tab"})];
const {name, key} = await kept.get(`identity ${server}/`);
assert.equal(name, "tab");
assert.equal(key.privateKey.extractable, false);
await assert.rejects(crypto.subtle.exportKey("pkcs8", key.privateKey));

const pending = saved.at(-1);
receipts.push(await run((saves) => saves === 3));
const {update} = saved[4];
assert.equal(update.sequence, pending.update.sequence + 1, "the update under way was sent again, with its number");

assert.deepEqual(await identityOf(server, kept), {name: "tab"});
console.log(JSON.stringify({receipts, sequences: saved.map((one) => one.update.sequence)}));
await forget(server, kept);
assert.equal(await identityOf(server, kept), null);
process.stdout.write("", () => process.exit(0));
