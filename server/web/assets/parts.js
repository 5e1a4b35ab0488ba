// What a run consists of beside its server: gateways that hold its devices, shards that have its model.

import { el, fill, refill } from "./dom.js";
import { age, count, pace, rate, size } from "./numbers.js";
import { state } from "./state.js";

const MUCH = 1 << 20; // bytes that wait for a gateway which does not keep up
const HEADS = ["Gateway", "Devices", "Updates/s", "Received", "Sent", "Waiting", "Up"];

export class Parts {
    constructor() {
        this.rows = el("tbody", {});
        this.table = el(
            "table",
            { class: "card parts" },
            el("thead", {}, el("tr", {}, ...HEADS.map((head) => el("th", { scope: "col" }, head)))),
            this.rows,
        );
        this.shards = el("p", { class: "card shards" });
        this.element = el("section", { "aria-label": "Gateways and shards" }, this.table, this.shards);
    }

    render(overview) {
        // A frame leaves out what there is none of.
        const { gateways = [], shards = [], restored = 0 } = overview;
        this.table.hidden = !gateways.length;
        this.shards.hidden = !shards.length && !restored;
        this.element.hidden = this.table.hidden && this.shards.hidden;
        fill(this.rows, ...gateways.map(gateway));
        refill(this.shards, JSON.stringify([shards, restored]), () => told(shards, restored));
    }
}

function gateway([name, address, since, devices, updates, received, sent, waiting]) {
    const cells = [
        count(devices),
        rate(updates),
        pace(received),
        pace(sent),
        size(waiting),
        age(Math.max(0, state.time - since)),
    ];
    return el(
        "tr",
        {},
        el("th", { scope: "row", title: address }, name),
        ...cells.map((text, place) =>
            el("td", { class: place === 4 && waiting > MUCH ? "warn" : "" }, text),
        ),
    );
}

function told(shards, restored) {
    const again = restored ? el("span", { class: "warn" }, `made again ${count(restored)} ${restored > 1 ? "times" : "time"}`) : null;
    if (!shards.length) return [el("b", {}, "Shards"), " are being made again from the journal; ", again];
    const sizes = shards.map((shard) => shard[1]);
    const nodes = new Set(shards.map((shard) => shard[0])).size;
    const sum = sizes.reduce((a, b) => a + b, 0);
    return [
        el("b", {}, "Shards"),
        ` ${count(shards.length)} on ${count(nodes)} ${nodes > 1 ? "nodes" : "node"}, ${size(sum)} of the model, ` +
            `the largest ${size(Math.max(...sizes))}`,
        again ? "; " : null,
        again,
    ];
}
