/**
 * Tables in CSV, read by the rules of `csv:PATH?label=COLUMN`: columns by name, in the run's units, gaps as its means.
 * @module
 */

/** @typedef {{line: number, cells: string[]}} Row */
/** @typedef {{header: string[], rows: Row[], separator: string}} Table */
/** @typedef {import("../records.js").Description} Description */

const MISSING = new Set(["", "na", "n/a", "#n/a", "<na>", "nan", "null", "?"]);
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
/** @type {Description} */
const NONE = {columns: [], means: [], spreads: [], labels: [], numbers: false, target: [], categories: []};
const SEPARATORS = [",", ";", "\t", "|"];

const isMissing = (/** @type {string} */ cell) => MISSING.has(cell.trim().toLowerCase());

/**
 * The cells of a text. Throws an Error that names the line.
 * @param {string} text
 * @param {string} separator "": found in the first line
 * @returns {Table}
 */
export function parseTable(text, separator = "") {
  if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
  const first = text.slice(0, (text + "\n").indexOf("\n"));
  const counts = SEPARATORS.map((one) => first.split(one).length);
  separator ||= SEPARATORS[counts.indexOf(Math.max(...counts))];
  const [named, ...rows] = lines(text, separator);
  if (!named) throw new Error("the file is empty");
  const header = named.cells.map((name) => name.trim());
  const twice = header.find((name, at) => header.indexOf(name) < at);
  if (twice !== undefined) throw new Error(`two columns have the name "${twice}"; rename one`);
  for (const {line, cells} of rows)
    if (cells.length !== header.length)
      throw new Error(`line ${line} has ${cells.length} cells, and the first one ${header.length}; correct it`);
  if (!rows.length) throw new Error("the file has no rows but the one that names the columns");
  return {header, rows, separator};
}

/**
 * The lines that are not empty, as RFC 4180 has them: a quoted cell may have separators, quotes and line ends.
 * @param {string} text
 * @param {string} separator
 */
function lines(text, separator) {
  /** @type {Row[]} */
  const found = [];
  /** @type {string[]} */
  let cells = [];
  let [cell, quoted, line, began] = ["", false, 1, 1];
  const end = () => {
    cells.push(cell);
    if (cells.some((one) => one)) found.push({line: began, cells});
    [cells, cell] = [[], ""];
  };
  for (let at = 0; at < text.length; at++) {
    const c = text[at];
    if (c === "\n") line++;
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[at + 1] === '"') cell += text[++at];
      else quoted = false;
    } else if (c === '"' && !cell) quoted = true;
    else if (c === separator) [cell] = ["", cells.push(cell)];
    else if (c === "\n") [, began] = [end(), line];
    else if (c !== "\r") cell += c;
  }
  if (cell || cells.length) end();
  return found;
}

/**
 * A table's samples for a run, and how many rows have no label or lack a value. Throws an Error that names the line.
 * @param {Table} table
 * @param {{label: string, input?: number[] | null, description?: Description | null}} options `label`: the column to
 * predict. `input`: the shape of one sample of the run. `description`: the run's.
 */
export function readTable({header, rows, separator}, {label, input = null, description = null}) {
  const place = (name, what) => {
    if (!header.includes(name)) throw new Error(`there is no column "${name}"${what}; there are ${header.join(", ")}`);
    return header.indexOf(name);
  };
  const target = place(label, "");
  const columns = description?.columns?.length ? description.columns : header.filter((name) => name !== label);
  const places = columns.map((name) => place(name, ", which the run trains on"));
  /** @type {Description} */
  const units = {...NONE, ...description};
  const names = columns.map((_, at) => units.categories?.[at] ?? []);
  const number = reader(rows, separator);
  const labelled = rows.filter(({cells}) => !isMissing(cells[target]));
  if (!labelled.length) throw new Error(`the column "${label}" is empty`);
  const width = names.reduce((sum, some) => sum + Math.max(1, some.length), 0);
  if (input && (input.length !== 1 || input[0] !== width))
    throw new Error(`the table makes ${width} numbers of a row, and the model takes samples of [${input.join(", ")}]`);
  const x = new Float32Array(labelled.length * width);
  let [incomplete, offset] = [0, 0];
  labelled.forEach(({line, cells}, row) => {
    let gaps = 0;
    offset = row * width;
    places.forEach((column, at) => {
      const cell = cells[column];
      if (names[at].length) {
        const category = names[at].indexOf(cell.trim());
        if (category >= 0) x[offset + category] = 1;
        else gaps++;
        offset += names[at].length;
        return;
      }
      if (isMissing(cell)) {
        if (!units.means.length) throw new Error(`line ${line}: ${columns[at]} is empty; fill it in, or remove the row`);
        gaps++;
      } else {
        const value = number(cell);
        if (value === null) throw new Error(`line ${line}: ${columns[at]} is "${cell.slice(0, 40)}", not a number; correct it`);
        x[offset] = units.means.length ? (value - units.means[at]) / units.spreads[at] : value;
      }
      offset++;
    });
    if (gaps) incomplete++;
  });
  const y = targets(labelled, target, units, number);
  return {x, y, shape: [width], unlabelled: rows.length - labelled.length, incomplete};
}

/**
 * What reads a number; null: it is none. They are written 3,5 if cells are separated by semicolons and one is.
 * @param {Row[]} rows
 * @param {string} separator
 */
function reader(rows, separator) {
  const comma = separator === ";" && rows.some(({cells}) => cells.some((cell) => /^\s*[+-]?\d*,\d+\s*$/.test(cell)));
  return (cell) => {
    const text = (comma ? cell.replace(",", ".") : cell).trim();
    return NUMBER.test(text) ? Number(text) : null;
  };
}

/**
 * @param {Row[]} rows
 * @param {number} column
 * @param {Description} description
 * @param {(cell: string) => number | null} number
 */
function targets(rows, column, {labels, numbers, target}, number) {
  const wrong = (line, cell, wanted) =>
    new Error(`line ${line}: the label is "${cell.slice(0, 40)}", and the run's are ${wanted}; correct it`);
  const classes = new Map(labels.map((name, at) => [name, at]));
  const whole = rows.every(({cells}) => /^\s*[+-]?\d+\s*$/.test(cells[column]));
  const found = rows.map(({line, cells}) => {
    const cell = cells[column].trim();
    if (classes.size) {
      const named = classes.get(whole ? String(Number(cell)) : cell);
      if (named === undefined) throw wrong(line, cell, shown(labels));
      return named;
    }
    const value = number(cell);
    if (numbers) {
      if (value === null) throw wrong(line, cell, "numbers");
      return target?.length ? (value - target[0]) / target[1] : value;
    }
    if (value === null || !Number.isInteger(value) || value < 0) throw wrong(line, cell, "classes 0, 1, ...");
    return value;
  });
  return numbers ? Float32Array.from(found) : Int32Array.from(found);
}

const shown = (/** @type {string[]} */ names) => names.slice(0, 10).join(", ") + (names.length > 10 ? ", ..." : "");
