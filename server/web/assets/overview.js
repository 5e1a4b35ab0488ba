// The run as a whole: what it has come to, and how it went.

import { Chips } from "./chips.js";
import { bars, Chart } from "./chart.js";
import { el, say } from "./dom.js";
import { count, decimal, pace, percent, rate, size, times, trimmed } from "./numbers.js";
import { Parts } from "./parts.js";
import { rates, state, sums } from "./state.js";

const RANGES = [
    ["10 min", 600],
    ["1 hour", 3600],
    ["1 day", 86400],
    ["All", Infinity],
];
const BINS = ["0", "1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1k+"];

export class Overview {
    constructor() {
        this.seconds = 3600;
        this.tiles = Object.fromEntries(
            ["Accuracy", "Return", "Loss", "Received", "Sent", "Both ways"].map((title) => [title, tile(title)]),
        );
        const whole = (value) => percent(value / 100);
        this.charts = {
            accuracy: new Chart("Accuracy", whole, [["test", "one"]], {
                zero: false,
                top: 100,
                axis: (value) => `${trimmed(value)}%`,
                empty: "no evaluation with accuracy yet",
            }),
            returned: new Chart("Return", decimal, [["test", "one"]], { zero: false, axis: trimmed }),
            loss: new Chart(
                "Loss",
                decimal,
                [
                    ["test", "one"],
                    ["training", "two"],
                ],
                { axis: trimmed, clip: true, empty: "no update and no evaluation yet" },
            ),
            updates: new Chart("Updates a second", rate, [["updates", "three"]], { axis: trimmed }),
            ingress: new Chart("Traffic in", pace, [["received", "one"]]),
            egress: new Chart("Traffic out", pace, [["sent", "two"]]),
            devices: new Chart("Devices up", count, [["devices", "three"]]),
        };
        for (const name of ["accuracy", "returned", "loss", "devices"]) this.charts[name].element.classList.add("wide");
        this.ranges = new Chips("How far back", (seconds) => {
            this.seconds = seconds;
            this.render();
        });
        this.staleness = el("div", {});
        this.parts = new Parts();
        this.element = el(
            "div",
            {},
            el(
                "section",
                { class: "tiles", "aria-label": "Numbers" },
                ...Object.values(this.tiles).map((one) => one.element),
            ),
            this.parts.element,
            el("div", { class: "toolbar" }, this.ranges.element),
            el(
                "section",
                { class: "charts", "aria-label": "Curves" },
                ...Object.values(this.charts).map((chart) => chart.element),
                el(
                    "figure",
                    { class: "card chart wide" },
                    el(
                        "figcaption",
                        {},
                        el("h3", {}, "Staleness"),
                        el("span", { class: "legend" }, "versions behind, all updates since the start"),
                    ),
                    this.staleness,
                ),
            ),
        );
    }

    render() {
        const { overview, evaluations, marks } = state;
        const newest = evaluations.at(-1);
        const right = evaluations.map((one) => one[3]).filter((value) => value !== null);
        const t = this.tiles;
        t.Accuracy.say(
            right.length ? percent(right.at(-1)) : "\u2013",
            overview.evaluation_failed
                ? "the last evaluation failed"
                : right.length
                  ? `best ${percent(Math.max(...right))}`
                  : newest
                    ? "the evaluation has none"
                    : "no evaluation yet",
        );
        const returns = evaluations.filter((one) => (one[6]?.return ?? null) !== null);
        const acts = returns.length > 0; // a policy: its return is what an accuracy is of other models
        t.Accuracy.element.hidden = this.charts.accuracy.element.hidden = acts;
        t.Return.element.hidden = this.charts.returned.element.hidden = !acts;
        if (acts) {
            const best = Math.max(...returns.map((one) => one[6].return));
            t.Return.say(decimal(returns.at(-1)[6].return), `best ${decimal(best)}`);
        }
        t.Loss.say(decimal(newest ? newest[2] : null), `training ${decimal(overview.loss)}`);
        const [up, down] = sums();
        t.Received.say(size(up), overview.reduction ? `${times(overview.reduction)} less than dense` : "");
        t.Sent.say(
            size(down),
            down && overview.dense_bytes ? `${times(overview.dense_bytes / down)} less than dense` : "",
        );
        t["Both ways"].say(
            size(up + down),
            up + down && overview.dense_bytes
                ? `${times((2 * overview.dense_bytes) / (up + down))} less than dense`
                : "",
        );

        this.parts.render(overview);
        this.ranges.show(
            RANGES.map(([name, seconds]) => [seconds, name, null, ""]),
            this.seconds,
        );
        const began = Math.min(evaluations[0]?.[1] ?? state.time, marks[0]?.[0] ?? state.time);
        const to = state.time;
        const from = Math.min(Math.max(began, to - this.seconds), to - 20);
        const c = this.charts;
        c.accuracy.draw(
            [evaluations.filter((one) => one[3] !== null).map((one) => [one[1], one[3] * 100])],
            from,
            to,
        );
        c.returned.draw([returns.map((one) => [one[1], one[6].return])], from, to);
        c.loss.draw(
            [
                evaluations.filter((one) => one[2] !== null).map((one) => [one[1], one[2]]),
                marks.filter((mark) => mark[4] !== null).map((mark) => [mark[0], mark[4]]),
            ],
            from,
            to,
        );
        c.updates.draw([rates(1)], from, to);
        c.devices.draw([marks.map((mark) => [mark[0], mark[5]])], from, to);
        c.ingress.draw([rates(2)], from, to);
        c.egress.draw([rates(3)], from, to);
        this.staleness.replaceChildren(bars(overview.staleness, BINS, "Staleness of all updates"));
    }
}

function tile(title) {
    const value = el("b", {});
    const about = el("small", {});
    return {
        element: el("div", { class: "card tile" }, el("h3", {}, title), value, about),
        say: (text, words) => {
            say(value, text);
            say(about, words);
        },
    };
}
