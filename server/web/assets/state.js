// What is known of the run: frames in, one object that the pages read.

const MOST_EVENTS = 1000;
const MOST_POINTS = 4000;
const SMOOTH = 10; // seconds that rates are averaged over, as at the server

export const state = {
    run: null,
    role: "viewer",
    columns: [],
    at: Object.create(null), // column -> place in a row
    devices: new Map(),
    overview: null,
    evaluations: [],
    events: [],
    marks: [], // [time, version, ingress, egress, loss, devices up]
    findings: [], // the worst first
    wrong: new Map(), // device -> the worst that is wrong with it
    time: 0, // of the server's clock
    joined: 0, // changes when there are other devices than before
};

export function reduce(frame) {
    if (frame.type === "snapshot") {
        state.run = frame.run;
        state.role = frame.role;
        state.columns = frame.columns;
        state.at = Object.create(null);
        frame.columns.forEach((name, place) => {
            state.at[name] = place;
        });
        state.devices = new Map(frame.devices.map((row) => [row[state.at.id], row]));
        state.joined += 1;
        state.evaluations = frame.evaluations;
        state.events = frame.events;
    } else {
        const before = state.devices.size;
        for (const row of frame.devices) state.devices.set(row[state.at.id], row);
        if (state.devices.size !== before) state.joined += 1;
        state.evaluations = thinned(state.evaluations.concat(frame.evaluations));
        state.events = state.events.concat(frame.events).slice(-MOST_EVENTS);
    }
    state.overview = frame.overview;
    state.findings = frame.overview.findings.map(([kind, severity, device, since, text, remedy]) => ({
        kind, severity, device, since, text, remedy,
    }));
    state.wrong = new Map(
        state.findings.filter((one) => one.device).reverse().map((one) => [one.device, one]),
    );
    state.time = frame.time;
    const { version, ingress, egress, loss, up } = frame.overview;
    state.marks = thinned([...state.marks, [frame.time, version, ingress, egress, loss, up]]);
}

// What the server remembers fills the times in which this page saw nothing.
export function remember(past) {
    const times = state.marks.map((mark) => mark[0]);
    const near = (time) => {
        let low = 0;
        let high = times.length;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (times[middle] < time) low = middle + 1;
            else high = middle;
        }
        return Math.min(
            Math.abs((times[low] ?? Infinity) - time),
            Math.abs((times[low - 1] ?? -Infinity) - time),
        );
    };
    state.marks = state.marks.concat(past.filter((mark) => near(mark[0]) > 2)).sort((a, b) => a[0] - b[0]);
}

export const named = (name) => {
    for (const row of state.devices.values()) if (row[state.at.name] === name) return row;
    return null;
};

// What a row says in a column; its contribution follows from the run's.
export const of = (row, column) =>
    column === "contribution"
        ? state.overview.version
            ? of(row, "updates") / state.overview.version
            : null
        : (row[state.at[column]] ?? null);

// Bytes that the server received from its devices, and sent to them.
export function sums() {
    let up = 0;
    let down = 0;
    for (const row of state.devices.values()) {
        up += of(row, "ingress");
        down += of(row, "egress");
    }
    return [up, down];
}

// [time, a second] of a count: field 1 is updates, 2 bytes received, 3 bytes sent.
export function rates(field, marks = state.marks) {
    const made = [];
    let from = 0;
    for (let n = 1; n < marks.length; n += 1) {
        while (from < n - 1 && marks[from + 1][0] <= marks[n][0] - SMOOTH) from += 1;
        // Over a hole nothing is known but the mean, which is no point of a curve.
        const start = marks[n][0] - marks[from][0] > 4 * SMOOTH && from < n - 1 ? n - 1 : from;
        const seconds = marks[n][0] - marks[start][0];
        if (seconds > 0)
            made.push([marks[n][0], Math.max(0, (marks[n][field] - marks[start][field]) / seconds)]);
    }
    return made;
}

function thinned(points) {
    return points.length <= MOST_POINTS
        ? points
        : points.filter((_, n) => n % 2 === 0 || n > MOST_POINTS / 2);
}
