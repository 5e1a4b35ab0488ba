// The codecs and the training of client/browser, against what Python's gave for the same inputs (vectors.py).
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {test} from "node:test";

const modules = process.env.MODULES;
const load = (path) => import(`${modules}/${path}`);
const vectors = JSON.parse(readFileSync(process.env.VECTORS));
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const floats = (text) => new Float32Array(bytes(text).buffer);
const same = (found, text) => assert.equal(Buffer.from(found.buffer, found.byteOffset, found.byteLength).toString("base64"), text);

const {Layout} = await load("layout.js");
const layout = Layout.of(vectors.layout);
const normed = Layout.of(vectors.normed);

/** Largest relative error of entries beyond `floor` times the largest one. */
function error(found, expected, floor = 1e-6) {
  const largest = expected.reduce((most, entry) => Math.max(most, Math.abs(entry)), 1e-30);
  return expected.reduce((most, entry, k) => Math.max(most, Math.abs(found[k] - entry) / Math.max(Math.abs(entry), floor * largest)), 0);
}

test("layouts have the same digest", async () => {
  same(await layout.digest(), vectors.digests[0]);
  same(await normed.digest(), vectors.digests[1]);
  assert.equal(normed.buffers, 6);
});

test("values are the same bytes, and the same numbers", async () => {
  const {decodeValues, encodeValues} = await load("codecs/values.js");
  for (const {mode, values, counts, octets, decoded} of vectors.values) {
    same(encodeValues(mode, floats(values), counts), octets);
    same(decodeValues(mode, bytes(octets), counts), decoded);
    if (bytes(octets).length) assert.throws(() => decodeValues(mode, bytes(octets).subarray(1), counts), /take/);
  }
});

test("indices are the same bytes, and no others are taken", async () => {
  const {decodeIndices, encodeIndices} = await load("codecs/indices.js");
  for (const {mode, size, indices, octets} of vectors.indices) {
    same(encodeIndices(mode, Int32Array.from(indices), size), octets);
    const read = (stream, count = indices.length, limit = size) => decodeIndices(mode, stream, count, limit);
    assert.deepEqual(Array.from(read(bytes(octets))), indices);
    if (!indices.length) continue;
    assert.throws(() => read(bytes(octets), indices.length + 1), /./);
    assert.throws(() => read(bytes(octets), indices.length - 1), /./);
    assert.throws(() => read(bytes(octets), indices.length, indices.at(-1)), /./);
    assert.throws(() => read(bytes(octets).subarray(0, -1)), /./);
  }
});

test("grids are the same bytes, and no others are taken", async () => {
  const {decodeGrid, encodeGrid} = await load("codecs/grid.js");
  const {followActivity} = await load("codecs/activity.js");
  for (const {indices, negative, activity, octets, after} of vectors.grids) {
    const past = Int32Array.from(activity);
    const found = encodeGrid(Int32Array.from(indices), Uint8Array.from(negative), layout, past);
    assert.deepEqual(Array.from(followActivity(past, Int32Array.from(indices), layout)), after);
    if (octets === null) {
      assert.equal(found, null);
      continue;
    }
    same(found, octets);
    const read = decodeGrid(bytes(octets), indices.length, layout, past);
    assert.deepEqual([Array.from(read.indices), Array.from(read.negative)], [indices, negative]);
    for (let bit = 0; bit < 8 * found.length; bit += 5) {
      const wrong = found.slice();
      wrong[bit >> 3] ^= 1 << (bit & 7);
      try {
        const other = decodeGrid(wrong, indices.length, layout, past);
        same(encodeGrid(other.indices, other.negative, layout, past), Buffer.from(wrong).toString("base64"));
      } catch (problem) {
        assert.equal(problem.constructor.name, "ServerFault", problem.stack);
      }
    }
  }
});

test("entries are coded in the same modes", async () => {
  const {decodeEntries, encodeEntries} = await load("codecs/entries.js");
  for (const {entries, where, modes, coded} of vectors.entries) {
    const indices = where && Int32Array.from(where);
    const found = encodeEntries(floats(entries), indices, layout, ...modes);
    assert.deepEqual([found.indexMode, found.valueMode], coded.slice(0, 2));
    same(found.indices, coded[2]);
    same(found.values, coded[3]);
    const read = decodeEntries({...found, count: floats(entries).length}, found.values, layout);
    assert.deepEqual(read.indices && Array.from(read.indices), where);
  }
});

test("the first model has the same bits", async () => {
  const {generate} = await load("training/start.js");
  for (const {seed, fillings, theta} of vectors.starts) {
    same(generate({seed: BigInt(seed), fillings: fillings.map(([kind, a, b]) => ({kind, a, b}))}, layout), theta);
  }
});

test("a replica holds the same bits after each model, and none of a wrong one", async () => {
  const {Replica} = await load("training/replica.js");
  const {decodeRecord} = await load("records.js");
  const {ServerFault} = await load("errors.js");
  const replica = new Replica(normed, null);
  for (const {record, theta, held, version} of vectors.models) {
    const model = decodeRecord(bytes(record));
    const before = replica.theta.slice();
    const wrong = [{...model, base: 77}, {...model, values: model.values.subarray(1)}, {...model, count: model.count + 1}];
    for (const one of wrong.slice(model.base === null ? 1 : 0, model.count ? 3 : 1)) assert.throws(() => replica.take(one), ServerFault);
    assert.deepEqual(replica.theta, before);
    replica.take(model);
    same(replica.theta, theta);
    assert.deepEqual([replica.held, replica.version], [held, version]);
  }
});

test("the same entries are selected, and the same rest is kept", async () => {
  const {NO_MEMORY, select, takeBack} = await load("training/selection.js");
  const {decodeRecord} = await load("records.js");
  for (const {name, welcome, steps} of vectors.selections) {
    const terms = decodeRecord(bytes(welcome));
    let memory = NO_MEMORY;
    steps.forEach((step, i) => {
      const [selection, next] = select(memory, floats(step.gradient), layout, terms, floats(step.theta), i + 1, step.base);
      memory = step.refused ? takeBack(next) : next;
      same(selection.gradient, step.corrected);
      assert.deepEqual(selection.indices && Array.from(selection.indices), step.indices, `${name}, step ${i}`);
      assert.deepEqual([selection.indexMode, selection.valueMode], step.modes);
    });
  }
});

test("directions agree to a relative 1e-4 of each entry, moments to a step of their coding", async () => {
  const {Adafactor, LocalOptimizer} = await load("training/optimizer.js");
  const {decodeMoments} = await load("codecs/moments.js");
  const {decodeRecord} = await load("records.js");
  for (const {name, welcome, steps} of vectors.optimizers) {
    const terms = decodeRecord(bytes(welcome));
    const own = terms.adafactor ? new Adafactor(layout, terms.adafactor, terms.start) : null;
    const optimizer = new LocalOptimizer(floats(steps[0].theta), terms, own);
    for (const [number, step] of steps.entries()) {
      if (step.fleet) await own.take(bytes(step.fleet), 0.75);
      const found = optimizer.direction(floats(step.theta), floats(step.gradient));
      assert.ok(error(found, floats(step.direction)) < 1e-4, `${name}, step ${number}: ${error(found, floats(step.direction))}`);
      const reported = (await own?.report(100 * number)) ?? new Uint8Array(0);
      assert.equal(reported.length > 0, step.reported.length > 0);
      if (!reported.length) continue;
      const [mine, theirs] = [await decodeMoments(reported, layout), floats(step.reported)];
      assert.ok(mine.every((mean, i) => mean === theirs[i] || (mean / theirs[i] <= 2 && mean / theirs[i] >= 0.5)));
    }
  }
});

test("personal layers begin and learn alike, and are part of no gradient", async () => {
  const {PersonalBackend, wholeLayout} = await load("training/personal.js");
  const {layoutOf, personalLayout} = await load("terms.js");
  const {decodeRecord} = await load("records.js");
  for (const {welcome, steps} of vectors.personal) {
    const terms = decodeRecord(bytes(welcome));
    const shared = layoutOf(terms, 2 ** 29);
    const own = personalLayout(terms, shared, 2 ** 29);
    assert.deepEqual(wholeLayout(shared, own).tensors.map(({name}) => name), ["w", "head", "bias", "m"]);
    let step = steps[0];
    const given = {
      gradient: async (theta) => {
        assert.ok(error(theta, floats(step.whole)) < 1e-4, "the whole theta");
        return {loss: 0.5, gradient: floats(step.gradient), statistics: new Float32Array(3), right: null};
      },
    };
    const backend = new PersonalBackend(given, shared.trained.size, own, terms, null);
    for (step of steps) {
      same((await backend.gradient(floats(step.theta), null)).gradient, step.shared);
      backend.step();
      assert.ok(error(backend.theta, floats(step.own)) < 1e-4);
    }
    const again = new PersonalBackend(given, shared.trained.size, own, terms, backend.theta);
    assert.equal(again.theta, backend.theta, "what it has stored");
    for (const damaged of [null, new Float32Array(3), new Float32Array(own.size).fill(NaN), "text"]) {
      assert.equal(new PersonalBackend(given, shared.trained.size, own, terms, damaged).theta.length, own.size);
    }
  }
});

test("labels are balanced alike", async () => {
  const {Calibration} = await load("training/calibration.js");
  const calibration = new Calibration(layout, 20);
  for (const [number, step] of vectors.calibrations.entries()) {
    calibration.observe(floats(step.gradient), Int32Array.from(step.y));
    same(calibration.report(number), step.report);
    calibration.take(bytes(step.fleet));
    assert.ok(error(calibration.shift(new Float32Array(layout.size).fill(1)), floats(step.shifted)) < 1e-6);
    assert.ok(Math.abs(calibration.importance - step.importance) < 1e-9);
    assert.ok(Math.abs(calibration.overlap - step.overlap) < 1e-9);
  }
});

test("records of a device are the same bytes, and those of a server the same fields", async () => {
  const records = await load("records.js");
  for (const [fields, octets] of vectors.records.updates) {
    const streams = Object.fromEntries(["indices", "values", "moments", "labels"].map((name) => [name, bytes(fields[name])]));
    same(records.encodeUpdate({...fields, ...streams, loss: fields.loss ?? NaN}), octets);
  }
  const {hello, pull, pull_held, telemetry, goodbye} = vectors.records.others;
  const octets = (text) => new Uint8Array(Buffer.from(text));
  const told = {name: "pi-7", layout: octets("1234"), facts: {cores: 4}, secret: octets("s"), proof: octets("p")};
  same(records.encodeHello(told), hello);
  same(records.encodePull(null, 0), pull);
  same(records.encodePull(5, 65500), pull_held);
  same(records.encodeTelemetry({paused: "hot"}), telemetry);
  same(records.encodeGoodbye("retired: stopped by its owner"), goodbye);
  const receipt = records.decodeRecord(bytes(vectors.records.receipt));
  assert.deepEqual([receipt.tag, receipt.sequence, receipt.version, receipt.model.version, receipt.model.base], ["Receipt", 9, 6, 8, 5]);
  const refusal = records.decodeRecord(bytes(vectors.records.refusal));
  assert.deepEqual(refusal, {tag: "Refusal", code: "base-expired", detail: "pull again", sequence: 8, seconds: 3});
  assert.equal(records.decodeRecord(bytes(vectors.records.stop)).reason, "the run is over");
  const known = [2, 4, 6, 7, 8].map((tag) => records.RECORDS[tag].fields.length);
  assert.deepEqual(known, vectors.records.fields, "no record has got a field that this device does not know");
  const welcome = records.decodeRecord(bytes(vectors.records.welcome));
  assert.deepEqual([welcome.significance, welcome.input, welcome.evaluate, welcome.start.seed], [0.5, [3, 4], 9, 7n]);
});

test("a record that is cut short, longer, or has another type is refused", async () => {
  const {decodeRecord} = await load("records.js");
  const {ServerFault} = await load("errors.js");
  const {encode} = await load("vendor/msgpack/index.mjs");
  const refuse = (octets) => assert.throws(() => decodeRecord(octets), ServerFault);
  for (const name of ["receipt", "refusal", "stop", "welcome"]) {
    const whole = bytes(vectors.records[name]);
    for (let size = 0; size < whole.length; size++) refuse(whole.subarray(0, size));
    refuse(Uint8Array.from([...whole, 0]));
    for (let i = 0; i < whole.length; i++) {
      for (const octet of [0xc1, 0xdd, 0xdf, 0xc6, 0xdb, 0xff, 0x80, 0xc9]) {
        const wrong = whole.slice();
        wrong[i] = octet;
        try {
          decodeRecord(wrong);
        } catch (problem) {
          assert.ok(problem instanceof ServerFault, problem.stack);
        }
      }
    }
  }
  refuse(Uint8Array.from([0xdd, 0xff, 0xff, 0xff, 0xff, 2]));
  refuse(encode([4, 3, 0, 2 ** 60, new Uint8Array(0)]));
  refuse(encode([4, 3, 4]));
  refuse(encode([6, 1, 1, [[[[]]]]]));
  refuse(encode([10, 1]));
  refuse(encode([99]));
});

test("a Welcome beyond the limits is refused before anything is allocated", async () => {
  const {decodeRecord} = await load("records.js");
  const {layoutOf} = await load("terms.js");
  const good = decodeRecord(bytes(vectors.selections[0].welcome));
  assert.equal(layoutOf(good, 2 ** 29).size, layout.size);
  const wrong = {
    protocol: 3, run: "a\nb", batch: 0, localSteps: 2 ** 40, localRate: Infinity, select: 0, balance: NaN, threshold: 2,
    feedback: -1, indices: 0, values: 6, frameBytes: 0, significance: NaN, adafactor: 1, proximal: -1, momentum: NaN,
    input: [2 ** 50, 2 ** 50], tasks: true, elastic: 0.5, personal: {layout: [], start: {seed: 1n, fillings: []}}, base: [1], app: new Uint8Array(1),
    layout: [["w", [2 ** 40, 2 ** 40]]],
  };
  for (const [name, value] of Object.entries(wrong)) {
    assert.throws(() => layoutOf({...good, [name]: value}, 2 ** 29), /server|run/, name);
  }
  for (const shapes of [[], [["w", [-1]]], [["w", [1]], ["w", [1]]], [["m", [1], true], ["w", [1]]], [["w", [0]]], [["w"]], [[3, [1]]]]) {
    assert.throws(() => layoutOf({...good, layout: shapes, start: null}, 2 ** 29), /server/);
  }
  assert.throws(() => layoutOf(good, 1000), /memory/);
});

test("graphs are taken and weighed as Python does it", async () => {
  const {readGraph, writeGraph} = await load("graphs/reading.js");
  const {footprint} = await load("graphs/footprint.js");
  const {ServerFault} = await load("errors.js");
  const attempt = (act) => {
    try {
      return [act(), null];
    } catch (problem) {
      assert.ok(problem instanceof ServerFault, problem.stack);
      return [null, problem.message];
    }
  };
  let weighed = 0;
  for (const {octets, read, shapes, cost, outputs, why} of vectors.graphs) {
    const [graph, problem] = attempt(() => readGraph(bytes(octets)));
    assert.equal(graph === null, read === null, `${problem} / ${why}`);
    if (graph === null) continue;
    same(writeGraph(graph), read);
    const [found, misfit] = attempt(() => footprint(graph, shapes));
    assert.equal(found === null, cost === null, `${misfit} / ${why}`);
    if (found === null) continue;
    assert.deepEqual([found.octets, found.work], cost);
    for (const [name, [type, shape]] of Object.entries(outputs)) {
      assert.deepEqual([found.outputs.get(name).type, found.outputs.get(name).shape], [type, shape]);
    }
    weighed++;
  }
  assert.ok(weighed > 20, `${weighed} graphs were weighed`);
});

test("gradients in WebAssembly agree with native ones to a relative 1e-5", async () => {
  const {Backend} = await load("training/backend.js");
  for (const {octets, shapes, theta, x, shape, y, whole, loss, gradient} of vectors.gradients) {
    const backend = await Backend.load(bytes(octets), Layout.of(shapes), 2 ** 29);
    const targets = whole ? new Int32Array(bytes(y).buffer) : floats(y);
    const found = await backend.gradient(floats(theta), {x: floats(x), y: targets, shape});
    assert.ok(Math.abs(found.loss / loss - 1) < 1e-5);
    const expected = floats(gradient);
    const norm = (vector) => Math.hypot(...vector);
    const relative = norm(found.gradient.map((entry, k) => entry - expected[k])) / norm(expected);
    assert.ok(relative < 1e-5, `${shapes.length} tensors: ${relative}`);
    await assert.rejects(backend.gradient(floats(theta), {x: floats(x), y: targets, shape: [...shape, 1]}), /server|data|model/);
    await backend.close();
  }
});
