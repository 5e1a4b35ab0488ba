// A closer look at a device: all that it tells, its last updates, what happened to it, and what may be done.

import { drop, pardon, pause, resume } from "./actions.js";
import { Chart } from "./chart.js";
import { MORE, sense, STATES } from "./columns.js";
import { el, fill, refill, say } from "./dom.js";
import { lines } from "./events.js";
import { count, decimal, NOTHING, pace, trimmed } from "./numbers.js";
import { named, of, state } from "./state.js";

const AGAIN = 5; // seconds between questions after its last updates

export class Device {
    constructor() {
        this.name = "";
        this.points = [];
        this.asked = -Infinity;
        this.title = el("h2", {});
        this.sign = el("span", { class: "pill" });
        this.why = el("span", { class: "dim" });
        this.acts = el("span", { class: "acts" });
        this.facts = el("dl", { class: "card facts" });
        this.charts = {
            loss: new Chart("Loss of its updates", decimal, [["loss", "two"]], {
                axis: trimmed,
                clip: true,
                empty: "no update yet",
            }),
            staleness: new Chart("Staleness", count, [["versions", "three"]], { empty: "no update yet" }),
            bytes: new Chart("Received from it", pace, [["bytes", "one"]], { empty: "no update yet" }),
        };
        this.events = el("ol", { class: "card events" });
        this.body = el(
            "div",
            {},
            this.facts,
            el("section", { class: "charts" }, ...Object.values(this.charts).map((chart) => chart.element)),
            el("h3", { class: "above" }, "Events"),
            this.events,
        );
        this.none = el("p", { class: "placeholder" });
        this.element = el(
            "div",
            {},
            el(
                "div",
                { class: "title" },
                el("a", { class: "back", href: "#fleet" }, "\u2190 Fleet"),
                this.title,
                this.sign,
                this.why,
                this.acts,
            ),
            this.none,
            this.body,
        );
    }

    open(name) {
        if (name === this.name) return;
        this.name = name;
        this.points = [];
        this.asked = -Infinity;
        this.offered = null;
    }

    render() {
        const row = named(this.name);
        say(this.title, this.name);
        this.body.hidden = !row;
        say(this.none, row ? "" : "This run has no such device.");
        if (!row) {
            fill(this.sign);
            fill(this.acts);
            this.offered = null;
            return;
        }
        const doing = of(row, "state");
        this.sign.className = `pill ${doing}`;
        fill(this.sign, el("i", { class: `sign ${doing}` }, STATES[doing] ?? ""), ` ${doing}`);
        say(this.why, of(row, "paused_because") ?? "");
        this.offer(doing, of(row, "clipped") !== null);
        const told = MORE.filter((column) => of(row, column.key) !== null);
        fill(
            this.facts,
            ...told.map((column) =>
                el(
                    "div",
                    {},
                    el("dt", { title: column.about }, column.title),
                    el(
                        "dd",
                        { class: sense(column.key, of(row, column.key)) },
                        column.form(of(row, column.key), state.time, (key) => of(row, key)),
                    ),
                ),
            ),
        );
        const events = state.events
            .filter((event) => event[2] === this.name)
            .slice(-50)
            .reverse();
        refill(this.events, `${this.name} ${events.length} ${events[0]?.[0]}`, () =>
            events.length ? lines(events) : [el("li", { class: "dim" }, NOTHING)],
        );
        this.draw();
        if (performance.now() - this.asked > AGAIN * 1000) this.ask();
    }

    offer(doing, defended) {
        const acts = doing === "paused" ? "resume" : "pause";
        const wanted = state.role === "admin" ? `${acts}${defended ? " pardon" : ""}` : "";
        if (this.offered === wanted) return;
        this.offered = wanted;
        const button = (title, act, grave) =>
            el(
                "button",
                { type: "button", class: grave ? "grave" : "", on: { click: () => act([this.name]) } },
                title,
            );
        fill(
            this.acts,
            ...(wanted
                ? [
                      acts === "resume" ? button("Resume", resume) : button("Pause", pause),
                      defended ? button("Pardon", pardon) : null,
                      button("Drop", drop, true),
                  ]
                : []),
        );
    }

    draw() {
        const points = this.points;
        const to = Math.max(state.time, points.at(-1)?.[0] ?? 0);
        const from = Math.min(points[0]?.[0] ?? to, to - 20);
        const speed = [];
        for (let n = 1; n < points.length; n += 1) {
            const back = Math.max(0, n - 5);
            const seconds = points[n][0] - points[back][0];
            if (seconds > 0.5)
                speed.push([points[n][0], Math.max(0, (points[n][3] - points[back][3]) / seconds)]);
        }
        this.charts.loss.draw(
            [points.filter((point) => point[1] !== null).map((point) => [point[0], point[1]])],
            from,
            to,
        );
        this.charts.staleness.draw(
            [points.filter((point) => point[2] !== null).map((point) => [point[0], point[2]])],
            from,
            to,
        );
        this.charts.bytes.draw([speed], from, to);
    }

    async ask() {
        this.asked = performance.now();
        const name = this.name;
        try {
            const answer = await fetch(`v1/devices/${encodeURIComponent(name)}`);
            if (!answer.ok || this.name !== name) return;
            this.points = (await answer.json()).history;
            this.draw();
        } catch {
            // The banner tells that the server is away.
        }
    }
}
