// Charts over time as SVG: one or two series, round ticks, holes shown as holes, one cross-hair for all.

import { el, fill, say, svg } from "./dom.js";
import { clock } from "./numbers.js";
import { bounds, hours, nearest, path, round, thin, within } from "./scale.js";

const HEIGHT = 168;
const TOP = 10;
const BOTTOM = 22;
const RIGHT = 8;
const charts = new Set();
let pointed = null; // the time that the cross-hair is at

export class Chart {
    // `form(value)` writes a value, `axis(value)` one at the axis, `series` are [name, ink] with ink one, two or
    // three. With `zero` the axis begins there, `top` is the highest that can be; with `clip` a few wild values
    // are beyond it. `empty` is shown where there are no points.
    constructor(
        title,
        form,
        series,
        { zero = true, top = Infinity, axis = form, clip = false, empty = "nothing yet" } = {},
    ) {
        Object.assign(this, { title, form, axis, series, zero, top, clip, empty });
        this.legend = el("span", { class: "legend" });
        this.values = series.map(([name, ink]) => {
            const value = el("b", { class: "value" });
            this.legend.append(
                el(
                    "span",
                    { hidden: true },
                    series.length > 1 ? el("span", { class: `key ${ink}` }, name) : null,
                    " ",
                    value,
                ),
            );
            return value;
        });
        this.drawing = svg("svg", { role: "img", "aria-label": title, height: HEIGHT });
        this.bubble = el("div", { class: "bubble", hidden: true });
        this.element = el(
            "figure",
            { class: "card chart" },
            el("figcaption", {}, el("h3", {}, title), this.legend),
            el("div", { class: "canvas" }, this.drawing, this.bubble),
        );
        this.drawing.addEventListener("pointermove", (event) => this.point(event));
        this.drawing.addEventListener("pointerdown", (event) => this.point(event));
        this.drawing.addEventListener("pointerleave", () => show(null));
        this.data = series.map(() => []);
        this.range = [0, 1];
        charts.add(this);
    }

    // Points [time, value] of each series, and the times at both ends of the axis.
    draw(data, from, to) {
        this.range = [from, to];
        this.data = data.map((points) => within(points, from, to));
        this.values.forEach((value, n) => {
            const last = this.data[n].at(-1);
            value.parentElement.hidden = !last;
            say(value, last ? this.form(last[1]) : "");
        });
        this.render();
    }

    render() {
        const width = this.drawing.parentElement.clientWidth;
        if (!width) return;
        this.drawing.setAttribute("width", width);
        const all = this.data.flat().map((point) => point[1]);
        if (!all.length) {
            fill(this.drawing, svg("text", { x: width / 2, y: HEIGHT / 2, class: "empty" }, this.empty));
            this.place = null;
            return;
        }
        const ticks = round(...bounds(all, this), 4);
        const labels = ticks.map(this.axis);
        const left = 12 + 6.6 * Math.max(...labels.map((label) => label.length));
        const [low, high] = [ticks[0], ticks.at(-1)];
        const [from, to] = this.range;
        const x = (time) => left + ((time - from) / (to - from || 1)) * (width - left - RIGHT);
        const y = (value) =>
            TOP + (1 - (Math.min(value, high) - low) / (high - low || 1)) * (HEIGHT - TOP - BOTTOM);
        this.place = { x, y, left, width };
        const parts = ticks
            .map((tick, n) => [
                svg("line", {
                    x1: left,
                    x2: width - RIGHT,
                    y1: y(tick),
                    y2: y(tick),
                    class: n ? "grid" : "axis",
                }),
                svg("text", { x: left - 7, y: y(tick) + 4, class: "tick y" }, labels[n]),
            ])
            .flat();
        for (const [time, label] of hours(from, to, (width - left) / 84)) {
            const place = x(time);
            const end = place > width - 26;
            parts.push(
                svg(
                    "text",
                    { x: end ? width - RIGHT : place, y: HEIGHT - 5, class: end ? "tick x end" : "tick x" },
                    label,
                ),
            );
        }
        this.series
            .map((_, n) => n)
            .reverse()
            .forEach((n) => {
                const ink = this.series[n][1];
                parts.push(
                    svg("path", {
                        d: path(thin(this.data[n], (width - left) * 1.5), x, y),
                        class: `line ${ink}`,
                    }),
                );
                const last = this.data[n].at(-1);
                if (last)
                    parts.push(
                        svg("circle", { cx: x(last[0]), cy: y(last[1]), r: 2.6, class: `dot ${ink}` }),
                    );
            });
        this.cross = svg("g", { class: "cross" });
        fill(this.drawing, ...parts, this.cross);
        this.point_at(pointed);
    }

    point(event) {
        if (!this.place) return;
        const box = this.drawing.getBoundingClientRect();
        const { left, width } = this.place;
        const part = (event.clientX - box.left - left) / (width - left - RIGHT);
        const [from, to] = this.range;
        show(part < -0.02 ? null : from + Math.min(1, Math.max(0, part)) * (to - from));
    }

    point_at(time) {
        if (!this.cross) return;
        const near =
            time === null || !this.place
                ? []
                : this.data
                      .map((points) => nearest(points, time))
                      .map((point, n) => point && [...point, n])
                      .filter(Boolean);
        const reach = (this.range[1] - this.range[0]) / 20;
        const shown = near.filter((point) => Math.abs(point[0] - time) < reach);
        this.bubble.hidden = !shown.length;
        if (!shown.length) {
            fill(this.cross);
            return;
        }
        const { x, y, width } = this.place;
        const at = x(shown[0][0]);
        fill(
            this.cross,
            svg("line", { x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM }),
            ...shown.map(([when, value, n]) =>
                svg("circle", { cx: x(when), cy: y(value), r: 3.5, class: `dot ${this.series[n][1]}` }),
            ),
        );
        fill(
            this.bubble,
            el("time", {}, clock(shown[0][0])),
            ...shown.map(([, value, n]) =>
                el(
                    "div",
                    {},
                    this.series.length > 1
                        ? el("span", { class: `key ${this.series[n][1]}` }, this.series[n][0])
                        : null,
                    el("b", {}, this.form(value)),
                ),
            ),
        );
        const right = at > width / 2;
        this.bubble.classList.toggle("left", right);
        this.bubble.style.left = `${right ? at - 10 : at + 10}px`;
    }

    forget() {
        charts.delete(this);
    }
}

function show(time) {
    pointed = time;
    for (const chart of charts) if (chart.element.isConnected) chart.point_at(time);
}

addEventListener("resize", () => {
    for (const chart of charts) if (chart.element.isConnected) chart.render();
});

// Bars of counts, as of a histogram.
export function bars(counts, labels, title) {
    const most = Math.max(1, ...counts);
    const total = counts.reduce((a, b) => a + b, 0);
    return el(
        "div",
        { class: "bars", role: "img", "aria-label": title },
        ...counts.map((count, n) => {
            const bar = el("i", {});
            bar.style.height = `${count ? Math.max(2, (count / most) * 100) : 0}%`;
            return el(
                "span",
                {
                    title: `${labels[n]}: ${count.toLocaleString("en-US")} (${total ? ((count / total) * 100).toFixed(1) : 0}%)`,
                },
                el("s", {}, bar),
                el("small", {}, labels[n]),
            );
        }),
    );
}
