// Filters, as in `edgeflock top`: terms apart, all of which must hold; | or, ! not; loss>1.5, state:paused.

const UNITS = { s: 1, m: 60, h: 3600, d: 86400, b: 1, kb: 1e3, mb: 1e6, gb: 1e9, "%": 1 };
const TERM = /^(~?[a-z_]+(?:\/s)?)(<=|>=|:|=|<|>)(.+)$/i;

// A test of an item, or an Error in words. `words(item)` are texts that a bare word is looked for in,
// `fields` maps a name to what gives an item's value.
export function parse(query, words, fields) {
    const either = query
        .trim()
        .split("|")
        .map((part) => part.trim().split(/\s+/).filter(Boolean));
    if (either.length > 1 && either.some((part) => !part.length))
        throw new Error("| stands between two terms");
    const tests = either.map((terms) => terms.map((term) => one(term, words, fields)));
    return (item) => tests.some((all) => all.every((test) => test(item)));
}

function one(term, words, fields) {
    if (term.startsWith("!") && term.length > 1) {
        const test = one(term.slice(1), words, fields);
        return (item) => !test(item);
    }
    const found = TERM.exec(term);
    if (!found) {
        const wanted = term.toLowerCase();
        return (item) => words(item).some((text) => text !== null && text.toLowerCase().includes(wanted));
    }
    const [, name, sign, text] = found;
    const field = fields[name.toLowerCase()];
    if (!field) throw new Error(`there is no ${name}; ${Object.keys(fields).join(", ")}`);
    if (sign === ":") {
        const wanted = text.toLowerCase();
        return (item) =>
            String(field(item) ?? "")
                .toLowerCase()
                .includes(wanted);
    }
    const number = amount(text);
    if (sign === "=") {
        const same = text.toLowerCase();
        return (item) => {
            const value = field(item);
            return typeof value === "number" ? value === number : String(value ?? "").toLowerCase() === same;
        };
    }
    if (number === null) throw new Error(`${name}${sign} takes a number, not ${text}`);
    const holds = {
        "<": (a) => a < number,
        ">": (a) => a > number,
        "<=": (a) => a <= number,
        ">=": (a) => a >= number,
    }[sign];
    return (item) => {
        const value = field(item);
        return typeof value === "number" && holds(value);
    };
}

function amount(text) {
    const found = /^(-?[\d.]+(?:e-?\d+)?)([a-z%]*)$/i.exec(text);
    if (!found || Number.isNaN(Number(found[1]))) return null;
    const unit = found[2] ? UNITS[found[2].toLowerCase()] : 1;
    return unit === undefined ? null : Number(found[1]) * unit;
}
