// What charts reckon with, without a page: bounds, round ticks, lines with their holes.

import { clock } from "./numbers.js";

// The points between two times.
export function within(points, from, to) {
    const first = points.findIndex((point) => point[0] >= from);
    if (first < 0) return [];
    let last = points.length;
    while (last > first && points[last - 1][0] > to) last -= 1;
    return points.slice(first, last);
}

// What the values lie between; to be clipped, a few wild ones do not flatten all others.
export function bounds(values, { zero, top, clip }) {
    const sorted = [...values].sort((a, b) => a - b);
    let high = sorted.at(-1);
    if (clip && sorted.length >= 20)
        high = Math.min(high, Math.max(3 * sorted[Math.floor(sorted.length * 0.9)], sorted[0]) || high);
    const low = zero ? Math.min(0, sorted[0]) : sorted[0];
    if (high > low) return [low, Math.min(high, Math.max(top, low)), top];
    return zero
        ? [low, high || 1, top]
        : [low - Math.abs(low) * 0.05 - 1e-6, high + Math.abs(high) * 0.05 + 1e-6, top];
}

// About so many round numbers around both bounds.
export function round(low, high, top, about) {
    const rough = (high - low) / about;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999) ?? rough;
    const ticks = [];
    const first = Math.floor(low / step + 1e-9);
    for (let n = first; n <= first + 12; n += 1) {
        const tick = Number((n * step).toPrecision(10));
        ticks.push(Math.min(tick, top));
        if (tick >= Math.min(high, top) * (1 - 1e-9)) break;
    }
    return ticks.length > 1 ? ticks : [low, high];
}

const STEPS = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
];

// [time, label] at round times of this browser's zone, at most so many.
export function hours(from, to, most) {
    const step = STEPS.find((one) => (to - from) / one <= Math.max(2, most)) ?? STEPS.at(-1);
    const zone = new Date(from * 1000).getTimezoneOffset() * 60;
    const ticks = [];
    for (let time = Math.ceil((from - zone) / step) * step + zone; time <= to; time += step) {
        ticks.push([time, step >= 86400 ? clock(time, "d") : step < 60 ? clock(time) : clock(time, "m")]);
    }
    return ticks;
}

// A line, broken where points are missing; a point on its own is a dot.
export function path(points, x, y) {
    let made = "";
    for (let n = 0; n < points.length; n += 1) {
        const [time, value] = points[n];
        const begins = n === 0 || missing(points, n);
        const alone = begins && (n === points.length - 1 || missing(points, n + 1));
        made += `${begins ? "M" : "L"}${x(time).toFixed(1)} ${y(value).toFixed(1)}${alone ? "h.1" : ""}`;
    }
    return made;
}

// Whether there is a hole before point n: much longer than the steps on either side of it.
function missing(points, n) {
    const step = points[n][0] - points[n - 1][0];
    const before = n > 1 ? points[n - 1][0] - points[n - 2][0] : 0;
    const after = n + 1 < points.length ? points[n + 1][0] - points[n][0] : 0;
    return step > Math.max(30, 5 * before, 5 * after);
}

// The least and the greatest of each stretch, if there are more points than can be seen.
export function thin(points, most) {
    if (points.length <= most) return points;
    const every = Math.ceil((points.length / most) * 2);
    const made = [];
    for (let n = 0; n < points.length; n += every) {
        const part = points.slice(n, n + every);
        const low = part.reduce((a, b) => (b[1] < a[1] ? b : a));
        const high = part.reduce((a, b) => (b[1] > a[1] ? b : a));
        made.push(...(low[0] < high[0] ? [low, high] : low === high ? [low] : [high, low]));
    }
    return made;
}

export function nearest(points, time) {
    let best = null;
    for (const point of points)
        if (!best || Math.abs(point[0] - time) <= Math.abs(best[0] - time)) best = point;
    return best;
}
