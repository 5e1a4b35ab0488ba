// A device on the digits in node: events are lines of JSON on stdout, commands are lines on stdin.
//   node device.mjs MODULES DIRECTORY SERVER OPTIONS
import {existsSync, readFileSync, renameSync, writeFileSync} from "node:fs";
import {createInterface} from "node:readline";
import {deserialize, serialize} from "node:v8";

const [modules, directory, server, options] = process.argv.slice(2);
const {native, ...rest} = JSON.parse(options);
if (native) globalThis.WebSocket = (await import(`${modules}/node_modules/ws/wrapper.mjs`)).WebSocket;
const {Device} = await import(`${modules}/index.js`);
const octets = (name) => new Uint8Array(readFileSync(`${directory}/${name}`)).buffer;

/** A storage that outlasts the process. A key of WebCrypto is no data, so the test's key is exportable. */
function fileStorage(path) {
  const values = existsSync(path) ? deserialize(readFileSync(path)) : new Map();
  const save = () => {  // whole or not at all, as IndexedDB has it: a test may kill the process meanwhile
    writeFileSync(`${path}.new`, serialize(values));
    renameSync(`${path}.new`, path);
  };
  return {
    async get(key) {
      const value = values.get(key);
      if (!value?.pair) return value;
      const [privateKey, publicKey] = value.pair;
      const imported = [
        await crypto.subtle.importKey("pkcs8", privateKey, "Ed25519", true, ["sign"]),
        await crypto.subtle.importKey("raw", publicKey, "Ed25519", true, ["verify"]),
      ];
      return {...value, key: {privateKey: imported[0], publicKey: imported[1]}};
    },
    async set(key, value) {
      const {key: pair, ...others} = value?.key ? value : {};
      const open = (one, format) => crypto.subtle.exportKey(format, one).then((found) => new Uint8Array(found));
      values.set(key, pair ? {...others, pair: [await open(pair.privateKey, "pkcs8"), await open(pair.publicKey, "raw")]} : value);
      save();
    },
    async delete(key) {
      values.delete(key);
      save();
    },
  };
}

const generate = crypto.subtle.generateKey.bind(crypto.subtle);
crypto.subtle.generateKey = (kind, extractable, uses) => {
  if (extractable) throw new Error("a device's key must not be extractable");
  return generate(kind, true, uses);
};

const device = new Device({
  ...rest,
  server,
  data: {x: new Float32Array(octets("x")), y: new Int32Array(octets("y")), shape: [1, 8, 8]},
  storage: fileStorage(`${directory}/storage`),
  onEvent: (event) => console.log(JSON.stringify(event)),
});
createInterface({input: process.stdin}).on("line", (command) => {
  if (command === "stop") device.stop();
  else if (command === "resume") device.resume();
  else if (command.startsWith("pause ")) device.pause(command.slice(6));
});
await device.start();
process.stdin.unref();
process.stdout.write("", () => process.exit(0));
