// The data that a visitor gives: drawings, tables, images, motion. Each fits some models, and nothing leaves the page.

import { el, fill, say } from "../../assets/dom.js";
import { count } from "../../assets/numbers.js";
import { imageShape, scaled } from "../device/data/drawing.js";
import { folderOf, isImage, readImage } from "../device/data/images.js";
import { MotionRecorder, allowMotion, windowOf } from "../device/data/motion.js";
import { Samples } from "../device/data/samples.js";
import { parseTable, readTable } from "../device/data/table.js";

const PAD = 280; // pixels of the canvas
const FEWEST = 5; // drawings before it trains
const MOST_BYTES = 1 << 28; // of a table

// `changed` is called when there are samples that were not there before.
export function build_sources(section, terms, changed) {
    const classes = terms.description?.labels?.length ? terms.description.labels : [..."0123456789"];
    const context = { ...terms, classes, changed, input: terms.input ?? null };
    const fitting = SOURCES.filter(({ fits }) => fits(context));
    let open = null;
    const body = el("div", {});
    const choose = (source, button) => {
        open?.close?.();
        for (const other of kinds.querySelectorAll("button")) other.setAttribute("aria-pressed", other === button);
        open = source.make(context);
        fill(body, open.element);
        changed();
    };
    const buttons = fitting.map((source) =>
        el("button", { type: "button", "aria-pressed": "false", on: { click: ({ target }) => choose(source, target) } }, source.title),
    );
    const kinds = el("fieldset", { class: "kinds" }, el("legend", {}, "Train on"), ...buttons);
    const shape = context.input ? `[${context.input.join(", ")}]` : "its own shape";
    if (fitting.length) fill(section, kinds, body);
    else fill(section, el("p", {}, `This page has no data for a model that takes samples of ${shape}. A page of your own can give it some.`));
    if (fitting.length) choose(fitting[0], buttons[0]);
    return { data: async (wish) => open?.data(wish) ?? null, close: () => open?.close?.() };
}

const SOURCES = [
    { title: "Drawings", fits: ({ input, description }) => input && imageShape(input) && !description?.numbers && !description?.columns?.length, make: drawings },
    { title: "A table (CSV)", fits: ({ input }) => !input || input.length === 1, make: table },
    { title: "Images", fits: ({ input, description }) => input?.length === 3 && [1, 3].includes(input[0]) && !description?.numbers, make: images },
    { title: "Motion", fits: ({ input, description }) => input && windowOf(input) && globalThis.DeviceMotionEvent && !description?.numbers && !description?.columns?.length, make: motion },
];

function drawings({ input, classes, changed }) {
    const samples = new Samples(input, { least: FEWEST });
    const canvas = el("canvas", { class: "pad", width: PAD, height: PAD, role: "img", "aria-label": "Drawing area" });
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    const told = el("p", { class: "dim", role: "status" });
    const clear = () => {
        pen.fillStyle = "#fff";
        pen.fillRect(0, 0, PAD, PAD);
    };
    const pick = chooser(classes, "What it shows");
    const ask = el("p", { class: "ask" });
    pick.changed = () => fill(ask, "Draw ", el("b", {}, classes[pick.value]), ", as large as you like.");
    const next = () => pick.set(Math.floor(Math.random() * classes.length));
    let last = null;
    const at = ({ offsetX, offsetY }) => [(offsetX / canvas.clientWidth) * PAD, (offsetY / canvas.clientHeight) * PAD];
    const line = (event) => {
        const point = at(event);
        pen.lineWidth = PAD / 9; // as thick as the strokes of digits and MNIST
        pen.lineCap = pen.lineJoin = "round";
        pen.beginPath();
        pen.moveTo(...(last ?? point));
        pen.lineTo(...point);
        pen.stroke();
        last = point;
    };
    canvas.addEventListener("pointerdown", (event) => {
        try {
            canvas.setPointerCapture(event.pointerId);
        } catch {} // the pointer is gone
        line(event);
    });
    canvas.addEventListener("pointermove", (event) => last && line(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
    const add = () => {
        const { data } = pen.getImageData(0, 0, PAD, PAD);
        const ink = Float32Array.from({ length: PAD * PAD }, (_, i) => 1 - data[4 * i] / 255);
        const x = scaled(ink, PAD, imageShape(input));
        if (!x) return say(told, "Nothing is drawn yet.");
        samples.add(x, pick.value);
        const more = FEWEST - samples.count;
        say(told, `${count(samples.count)} drawn${more > 0 ? `; it trains once there are ${FEWEST}` : "; draw more, of all kinds"}.`);
        clear();
        next();
        changed();
    };
    clear();
    next();
    const buttons = el(
        "div",
        { class: "controls" },
        el("button", { type: "button", class: "main", on: { click: add } }, "Add"),
        el("button", { type: "button", on: { click: clear } }, "Clear"),
    );
    return { element: el("div", { class: "source" }, ask, canvas, buttons, pick.element, told), data: samples.data };
}

function table({ input, description, changed }) {
    let held = null;
    const told = el("p", { class: "dim", role: "status" });
    const label = el("select", { on: { change: () => use() } });
    const field = el("label", { class: "field", hidden: true }, "The column to predict", label);
    let parsed = null;
    const use = () => {
        try {
            held = null;
            const read = readTable(parsed, { label: label.value, input, description });
            held = pool(read, description?.numbers);
            const without = read.unlabelled ? `; rows without a label, left out: ${count(read.unlabelled)}` : "";
            const gaps = read.incomplete ? `; ${count(read.incomplete)} rows lack a value, which counts as the run's mean` : "";
            say(told, `${count(held.count)} row${held.count === 1 ? "" : "s"}${without}${gaps}.`);
            told.className = "dim";
            changed();
        } catch (error) {
            complain(told, error);
        }
    };
    const take = async ([file]) => {
        try {
            if (file.size > MOST_BYTES) throw new Error("the file has more than 256 MB; split it");
            parsed = parseTable(await file.text());
            fill(label, ...parsed.header.map((name) => el("option", { value: name }, name)));
            const own = new Set(description?.columns ?? []);
            label.value = parsed.header.findLast((name) => !own.has(name)) ?? parsed.header.at(-1);
            field.hidden = false;
            use();
        } catch (error) {
            complain(told, error);
        }
    };
    const columns = description?.columns?.length ? `It needs the columns ${description.columns.slice(0, 20).join(", ")}, and one to predict.` : "Its first line names the columns.";
    const element = el("div", { class: "source" }, dropzone({ accept: ".csv,.tsv,text/csv" }, `A CSV file. ${columns}`, take), field, told);
    return { element, data: async (wish) => held?.batch(wish.batch) ?? null };
}

function images({ input, classes, changed }) {
    const samples = new Samples(input);
    const told = el("p", { class: "dim", role: "status" });
    const pick = chooser(classes, "What images without a folder show");
    const take = async (files) => {
        let left_out = 0;
        for (const file of [...files].filter(isImage)) {
            const folder = folderOf(file);
            const known = classes.indexOf(folder);
            if (folder && known < 0 && files.length > 1 && file.webkitRelativePath.split("/").length > 2) left_out++;
            else
                try {
                    samples.add(await readImage(file, input), known >= 0 ? known : pick.value);
                } catch (error) {
                    return complain(told, error);
                }
        }
        say(told, `${count(samples.count)} images${left_out ? `; ${count(left_out)} in folders that are no class of the run are left out` : ""}.`);
        told.className = "dim";
        if (samples.count) changed();
    };
    const about = `Image files, or a folder with a folder for each class: ${classes.slice(0, 12).join(", ")}. They are resized to ${input[2]} x ${input[1]}.`;
    const files = dropzone({ accept: "image/*", multiple: true }, about, take);
    const folder = el("input", { type: "file", webkitdirectory: true, "aria-label": "A folder", on: { change: ({ target }) => take(target.files) } });
    return { element: el("div", { class: "source" }, pick.element, files, el("label", { class: "field" }, "A whole folder", folder), told), data: samples.data };
}

function motion({ input, classes, changed }) {
    const samples = new Samples(input);
    const told = el("p", { class: "dim", role: "status" }, "Choose what you do, then record it for some seconds.");
    const pick = chooser(classes, "What you do");
    const recorder = new MotionRecorder(input, (x) => {
        samples.add(x, pick.value);
        say(told, `${count(samples.count)} pieces of motion.`);
        changed();
    });
    let recording = false;
    const button = el("button", { type: "button", class: "main", "aria-pressed": "false" }, "Record");
    const record = (is) => {
        recording = is;
        if (is) recorder.start();
        else recorder.stop();
        say(button, is ? "Stop recording" : "Record");
        button.setAttribute("aria-pressed", is);
    };
    button.addEventListener("click", async () => {
        try {
            if (!recording) await allowMotion();
        } catch (error) {
            return complain(told, error);
        }
        record(!recording);
    });
    return { element: el("div", { class: "source" }, pick.element, button, told), data: samples.data, close: () => record(false) };
}

// All samples of arrays, as Samples.
function pool({ x, y, shape }, numbers) {
    const samples = new Samples(shape, { most: Infinity, numbers: Boolean(numbers) });
    const size = x.length / y.length;
    y.forEach((target, at) => samples.add(x.subarray(at * size, (at + 1) * size), target));
    return samples;
}

// One class of all: buttons if they are few, else a list.
function chooser(classes, title) {
    const made = { value: 0, changed: () => {} };
    const few = classes.length <= 12;
    const buttons = few
        ? classes.map((name, at) => el("button", { type: "button", on: { click: () => made.set(at) } }, name))
        : [];
    const list = few ? null : el("select", { "aria-label": title, on: { change: () => made.set(Number(list.value)) } }, ...classes.map((name, at) => el("option", { value: at }, name)));
    made.set = (at) => {
        made.value = at;
        buttons.forEach((button, place) => button.setAttribute("aria-pressed", place === at));
        if (list) list.value = at;
        made.changed();
    };
    made.element = el("div", { role: "group", "aria-label": title }, el("p", { class: "dim small" }, title), few ? el("div", { class: "choice" }, ...buttons) : list);
    made.set(0);
    return made;
}

function dropzone(attributes, about, take) {
    const field = el("input", { type: "file", ...attributes, "aria-label": "Choose a file", on: { change: () => field.files.length && take(field.files) } });
    const zone = el("div", { class: "drop" }, el("p", {}, about), field);
    const over = (event) => {
        event.preventDefault();
        zone.classList.toggle("over", event.type === "dragover");
    };
    zone.addEventListener("dragover", over);
    zone.addEventListener("dragleave", over);
    zone.addEventListener("drop", (event) => {
        over(event);
        if (event.dataTransfer.files.length) take(event.dataTransfer.files);
    });
    return zone;
}

function complain(element, error) {
    element.className = "trouble";
    say(element, error.message);
}
