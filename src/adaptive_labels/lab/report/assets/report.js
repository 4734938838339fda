// The maps of residual labels and test errors: epochs, order, search and figures. The page brings a still picture of the
// last epoch; this script changes its squares and names. Nothing here writes HTML: texts are set as texts.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const STRENGTHS = 9; // as in heatmap.py
const LONGEST_NAME = 20;
const unpackedBefore = new Map();

for (const root of document.querySelectorAll(".explorer")) {
  explore(root, JSON.parse(document.getElementById(root.dataset.source).textContent));
}

function explore(root, data) {
  const size = data.classes.length;
  const find = (name) => root.querySelector(`[name=${name}]`);
  const readout = root.querySelector(".readout");
  const state = { method: data.first, frame: 0, order: data.orders.similarity, row: -1, column: -1 };
  const maps = [...root.querySelectorAll("figure[data-kind]")].map((figure) => {
    const svg = figure.querySelector("svg.heatmap"), cells = svg.querySelector("svg.cells");
    cells.prepend(box("target", 0, 0, size, size)); // so that empty squares can be pointed at, too
    return { figure, svg, cells, kind: figure.dataset.kind };
  });

  connect();
  showMethod();
  root.querySelector(".controls").hidden = false;
  say(["Point at a square for its figures, or go to a map with Tab and use the arrow keys."]);

  function connect() {
    const on = (name, event, act) => find(name) && find(name).addEventListener(event, (e) => act(e.target.value));
    on("method", "change", (value) => { state.method = Number(value); showMethod(); tell(); });
    on("epoch", "input", (value) => { state.frame = Number(value); draw(); tell(); });
    on("search", "input", search);
    for (const radio of root.querySelectorAll("input[type=radio]")) {
      radio.addEventListener("change", () => reorder(data.orders[radio.value]));
    }
    for (const name of data.names || data.classes) {
      root.querySelector("datalist").append(Object.assign(document.createElement("option"), { value: name }));
    }
    for (const { svg, cells } of maps) {
      svg.setAttribute("tabindex", "0");
      svg.setAttribute("role", "application");
      svg.setAttribute("aria-roledescription", "heat map");
      svg.setAttribute("aria-label", `${svg.getAttribute("aria-label")}. Arrow keys move.`);
      svg.addEventListener("keydown", pressed);
      for (const event of ["pointermove", "pointerdown"]) cells.addEventListener(event, (e) => pointed(e, cells));
    }
  }

  function showMethod() {
    const epochs = data.methods[state.method].epochs, slider = find("epoch");
    state.frame = slider.max = Math.max(epochs.length - 1, 0);
    slider.value = state.frame;
    slider.closest("label").hidden = epochs.length < 2;
    draw();
  }

  function draw() {
    const method = data.methods[state.method], epoch = method.epochs[state.frame];
    for (const { figure, svg, cells, kind } of maps) {
      const matrix = matrixOf(kind);
      figure.hidden = !matrix;
      if (!matrix) continue;
      const paths = squares(matrix, data.largest[kind]);
      cells.querySelectorAll("path.heat").forEach((path, level) => path.setAttribute("d", paths[level]));
      for (const side of ["rows", "columns"]) {
        const chosen = side === "rows" ? state.row : state.column;
        svg.querySelectorAll(`g.${side} text`).forEach((text, i) => {
          const name = data.classes[state.order[i]];
          text.textContent = name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
          text.classList.toggle("found", i === chosen);
        });
      }
      cells.querySelectorAll(".cursor, .cross").forEach((old) => old.remove());
      if (state.row >= 0) cells.append(box("cross", 0, state.row, size, 1));
      if (state.column >= 0) cells.append(box("cross", state.column, 0, 1, size));
      if (state.row >= 0 && state.column >= 0) cells.append(box("cursor", state.column, state.row, 1, 1));
      const title = kind === "test" ? `Test errors of ${method.label}` : `Residual labels of ${method.label}, epoch ${epoch}`;
      figure.querySelector("h4").textContent = svg.querySelector("title").textContent = title;
    }
    root.querySelector("output").textContent = epoch ? `${epoch} of ${method.epochs.at(-1)}` : "";
  }

  // The path of each strength; neighbours in a row are drawn as one.
  function squares(matrix, largest) {
    const paths = Array.from({ length: STRENGTHS }, () => []);
    for (let i = 0; i < size; i++) {
      const levels = state.order.map((j) => Math.round(STRENGTHS * Math.min(matrix[state.order[i] * size + j] / largest, 1)));
      for (let j = 0, end; j < size; j = end) {
        for (end = j + 1; end < size && levels[end] === levels[j]; ) end++;
        if (levels[j] > 0) paths[levels[j] - 1].push(`M${j} ${i}h${end - j}v1h-${end - j}z`);
      }
    }
    return paths.map((path) => path.join(""));
  }

  function matrixOf(kind) {
    const method = data.methods[state.method];
    return unpacked(kind === "test" ? method.test : method.residual[state.frame]);
  }

  function tell() {
    if (state.row < 0) return;
    const residual = matrixOf("residual"), test = matrixOf("test");
    const i = state.order[state.row], lines = [];
    if (state.column >= 0 && state.column !== state.row) {
      const j = state.order[state.column], facts = [], epoch = data.methods[state.method].epochs[state.frame];
      if (residual) facts.push(`residual label ${share(residual[i * size + j])} at epoch ${epoch}`);
      if (test) facts.push(`${share(test[i * size + j])} of its ${data.examples[i]} test examples`);
      lines.push(`${data.classes[i]} → ${data.classes[j]}: ${facts.join(", ")}.`);
    }
    if (residual) lines.push(`${data.classes[i]} is taken for, by its residual label: ${largest(residual, i)}.`);
    if (test) lines.push(`On the test split: ${largest(test, i)}.`);
    say(lines);
  }

  function largest(matrix, i) {
    const row = data.classes.map((name, j) => ({ name, value: j === i ? 0 : matrix[i * size + j] }));
    const first = row.filter(({ value }) => value > 0).sort((a, b) => b.value - a.value).slice(0, 5);
    return first.map(({ name, value }) => `${name} ${share(value)}`).join(", ") || "nothing";
  }

  function say(lines) {
    readout.replaceChildren(...lines.map((line) => Object.assign(document.createElement("p"), { textContent: line })));
  }

  function choose(row, column) {
    Object.assign(state, { row, column });
    draw();
    tell();
  }

  function search(words) {
    const wanted = words.trim().toLowerCase(), names = data.names || data.classes;
    const lower = names.map((name) => name.toLowerCase());
    const ranks = [(name) => name === wanted, (name) => name.startsWith(wanted), (name) => name.includes(wanted)];
    const matches = [...new Set(ranks.flatMap((rank) => lower.flatMap((name, i) => (rank(name) ? [i] : []))))];
    choose(-1, -1);
    if (!wanted || !matches.length) {
      say(wanted ? [`No class is called “${words.trim()}”.`] : []);
      return;
    }
    const position = state.order.indexOf(data.classes.indexOf(names[matches[0]]));
    if (position < 0) {
      say([`${names[matches[0]]} is not among the ${size} classes drawn here. ${data.rows[matches[0]]}`]);
      return;
    }
    choose(position, -1);
    const others = matches.slice(1, 9).map((i) => names[i]);
    if (others.length) {
      const more = `Also found: ${others.join(", ")}${matches.length > 9 ? ", …" : ""}.`;
      readout.append(Object.assign(document.createElement("p"), { textContent: more }));
    }
  }

  function reorder(order) {
    const [row, column] = [state.row, state.column].map((position) => order.indexOf(state.order[position] ?? -1));
    state.order = order;
    choose(row, column);
  }

  function pressed(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    const clamp = (value) => Math.min(Math.max(value, 0), size - 1);
    const started = state.row >= 0 && state.column >= 0;
    choose(clamp(state.row + (started ? step[0] : 0)), clamp(state.column + (started ? step[1] : 0)));
    event.preventDefault();
  }

  function pointed(event, cells) {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(cells.getScreenCTM().inverse());
    const inside = (value) => Math.min(Math.max(Math.floor(value), 0), size - 1);
    const row = inside(place.y), column = inside(place.x);
    if (row !== state.row || column !== state.column) choose(row, column);
  }
}

// A byte is 255 times the square root of a share; see `pack` in heatmap.py.
function unpacked(text) {
  if (!text) return null;
  if (!unpackedBefore.has(text)) {
    unpackedBefore.set(text, Float32Array.from(atob(text), (letter) => (letter.charCodeAt(0) / 255) ** 2));
  }
  return unpackedBefore.get(text);
}

function share(value) {
  return value === 0 ? "0%" : `${(100 * value).toFixed(value < 0.02 ? 1 : 0)}%`;
}

function box(css, x, y, width, height) {
  const made = document.createElementNS(SVG, "rect");
  for (const [key, value] of Object.entries({ class: css, x, y, width, height })) made.setAttribute(key, value);
  return made;
}
