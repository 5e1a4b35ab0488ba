// What is wrong: the worst in a line, the others below it once they are unfolded.

import { el, refill } from "./dom.js";
import { clock, count, date } from "./numbers.js";
import { state } from "./state.js";

export class Findings {
    constructor() {
        this.worst = el("summary", {});
        this.others = el("div", { class: "others" });
        this.element = el("details", { class: "findings" }, this.worst, this.others);
        this.worst.addEventListener("click", (event) => {
            if (!this.others.childElementCount) event.preventDefault();
        });
    }

    render() {
        const { findings, overview } = state;
        const [worst, ...others] = findings;
        const untold = overview.more_findings ?? 0;
        const more = others.length + untold;
        this.element.hidden = !worst;
        this.element.classList.toggle("many", others.length > 0);
        const key = JSON.stringify([findings, untold]);
        refill(this.worst, key, () =>
            worst ? [finding(worst, more ? el("i", {}, `+${count(more)} more`) : null)] : [],
        );
        refill(this.others, key, () => [
            ...others.map((one) => finding(one)),
            untold ? el("p", { class: "dim" }, `and ${count(untold)} more that are less grave`) : null,
        ]);
    }
}

function finding({ kind, severity, device, since, text, remedy }, more = null) {
    return el(
        "p",
        { class: `finding ${severity}` },
        el("b", {}, kind),
        device ? el("a", { href: `#device/${encodeURIComponent(device)}` }, device) : null,
        el("span", {}, text),
        remedy ? el("span", { class: "dim" }, remedy) : null,
        el("time", { class: "dim", title: date(since) }, `since ${state.time - since < 86400 ? clock(since, "m") : date(since)}`),
        more,
    );
}
