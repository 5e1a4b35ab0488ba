/** Copies the two libraries that a device needs from node_modules to vendor/, where its imports find them. */
import {cpSync, mkdirSync, rmSync, writeFileSync} from "node:fs";

const from = (path) => new URL(`./node_modules/${path}`, import.meta.url);
const to = (path) => new URL(`./vendor/${path}`, import.meta.url);

rmSync(to(""), {recursive: true, force: true});
cpSync(from("@msgpack/msgpack/dist.esm"), to("msgpack"), {recursive: true, filter: (path) => !/\.[^/]*(map|ts|tsbuildinfo)$/.test(path)});
cpSync(from("@msgpack/msgpack/LICENSE"), to("msgpack/LICENSE"));
mkdirSync(to("onnxruntime-web"), {recursive: true});
// The second is for node alone: the first holds it for browsers.
for (const name of ["ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"]) {
    cpSync(from(`onnxruntime-web/dist/${name}`), to(`onnxruntime-web/${name}`));
}
// The types of what a device uses of them.
writeFileSync(
    to("msgpack/index.d.mts"),
    "export function encode(value: unknown, options?: object): Uint8Array;\n" +
        "export class Decoder {\n  constructor(options?: object);\n  decode(octets: Uint8Array): unknown;\n}\n",
);
writeFileSync(
    to("onnxruntime-web/ort.wasm.bundle.min.d.mts"),
    "export const env: any;\nexport const InferenceSession: any;\n" +
        "export class Tensor {\n  constructor(type: string, data: any, dims: readonly number[]);\n  data: any;\n}\n",
);
