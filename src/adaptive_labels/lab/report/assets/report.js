// The maps of residual labels and test errors: epochs, order, zoom and search.
// Without this script the page shows both maps at the last epoch. Nothing here writes HTML: texts are set as texts.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const STRENGTHS = 9; // as in heatmap.py
const LONGEST_NAME = 20;
const LETTER = 0.6; // the width of a letter in font sizes
const SMALLEST_FONT = 9.5;
const FEWEST_SHOWN = 4; // classes at the closest zoom
const FOUND_SHOWN = 15; // classes around one that was searched for
const unpackedBefore = new Map();

for (const root of document.querySelectorAll(".explorer")) {
  explore(root, JSON.parse(document.getElementById(root.dataset.source).textContent));
}

function explore(root, data) {
  const size = data.classes.length;
  const find = (name) => root.querySelector(`[name=${name}]`);
  const controls = root.querySelector(".controls");
  const readout = root.querySelector(".readout");
  const panels = [...root.querySelectorAll("figure[data-kind]")].map((figure) => panel(figure));
  const state = { method: data.first, frame: 0, order: data.orders.similarity, row: -1, column: -1 };
  const view = { row: 0, column: 0, count: size }; // the part of the maps that is shown, in squares
  let timer = 0;

  showMethod();
  controls.hidden = false;
  say(["Point at a square for its figures, or go to a map with Tab and use the arrow keys, + and −."]);
  connect();
  addEventListener("resize", draw);

  function showMethod() {
    const method = data.methods[state.method];
    state.frame = Math.max(method.epochs.length - 1, 0);
    const slider = find("epoch");
    slider.max = state.frame;
    slider.value = state.frame;
    slider.closest("label").hidden = method.epochs.length < 2;
    find("play").hidden = method.epochs.length < 2;
    draw();
  }

  function connect() {
    const on = (name, event, act) => find(name) && find(name).addEventListener(event, act);
    on("method", "change", (event) => { state.method = Number(event.target.value); showMethod(); tell(); });
    on("epoch", "input", (event) => { stop(); state.frame = Number(event.target.value); draw(); tell(); });
    on("play", "click", () => (timer ? stop() : play()));
    for (const radio of root.querySelectorAll("input[type=radio]")) {
      radio.addEventListener("change", () => reorder(data.orders[radio.value]));
    }
    on("in", "click", () => zoom(0.5));
    on("out", "click", () => zoom(2));
    on("whole", "click", () => zoom(Infinity));
    on("search", "input", (event) => search(event.target.value));
    const names = root.querySelector("datalist");
    for (const name of data.names || data.classes) {
      names.append(Object.assign(document.createElement("option"), { value: name }));
    }
    for (const { svg, cells } of panels) {
      svg.setAttribute("tabindex", "0");
      svg.setAttribute("role", "application");
      svg.setAttribute("aria-roledescription", "heat map");
      svg.setAttribute("aria-label", `${svg.getAttribute("aria-label")}. Arrow keys move, plus and minus zoom.`);
      svg.addEventListener("keydown", pressed);
      for (const event of ["pointermove", "pointerdown"]) cells.addEventListener(event, (e) => pointed(e, cells));
      cells.addEventListener("dblclick", () => zoom(0.5));
    }
  }

  // What is shown

  function draw() {
    const method = data.methods[state.method];
    for (const { figure, svg, cells, kind } of panels) {
      const matrix = unpacked(kind === "test" ? method.test : method.residual[state.frame]);
      figure.hidden = !matrix;
      if (!matrix) continue;
      const largest = (kind === "test" ? method.testLargest : method.residualLargest) || 1;
      const paths = squares(matrix, largest);
      cells.querySelectorAll("path.heat").forEach((path, level) => path.setAttribute("d", paths[level]));
      cells.setAttribute("viewBox", `${view.column} ${view.row} ${view.count} ${view.count}`);
      cursor(cells);
      labels(svg, cells);
      key(svg, largest);
      svg.dataset.epoch = kind === "test" ? "" : method.epochs[state.frame];
      const name = figure.querySelector("h4");
      name.textContent = kind === "test" ? `Test errors of ${method.label}`
        : `Residual labels of ${method.label}, epoch ${method.epochs[state.frame]}`;
      svg.querySelector("title").textContent = name.textContent;
    }
    const now = root.querySelector("output");
    if (method.epochs.length) now.textContent = `${method.epochs[state.frame]} of ${method.epochs.at(-1)}`;
  }

  function squares(matrix, largest) {
    const paths = Array.from({ length: STRENGTHS }, () => []);
    for (let i = 0; i < size; i++) {
      const row = state.order[i] * size;
      for (let j = 0; j < size; ) {
        const level = strength(matrix[row + state.order[j]] / largest);
        let end = j + 1;
        while (end < size && strength(matrix[row + state.order[end]] / largest) === level) end++;
        if (level > 0) paths[level - 1].push(`M${j} ${i}h${end - j}v1h-${end - j}z`);
        j = end;
      }
    }
    return paths.map((path) => path.join(""));
  }

  function cursor(cells) {
    cells.querySelectorAll(".cursor, .cross").forEach((old) => old.remove());
    const box = (css, x, y, width, height) => cells.append(element("rect", { class: css, x, y, width, height }));
    if (state.row >= 0) box("cross", 0, state.row, size, 1);
    if (state.column >= 0) box("cross", state.column, 0, 1, size);
    if (state.row >= 0 && state.column >= 0) box("cursor", state.column, state.row, 1, 1);
  }

  function labels(svg, cells) {
    const [left, top, side] = ["x", "y", "width"].map((name) => Number(cells.getAttribute(name)));
    const cell = side / view.count;
    // On a narrow screen the figure is drawn smaller: larger letters, and fewer of them, stay readable.
    const smallest = SMALLEST_FONT * Math.min(1.5, Math.max(1, svg.viewBox.baseVal.width / (svg.clientWidth || Infinity)));
    const font = Math.max(smallest, Math.min(12, cell * 0.95));
    const step = Math.max(1, Math.ceil(smallest / cell - 0.2)); // letters may touch a little
    const letters = Math.min(LONGEST_NAME, Math.max(4, Math.floor((left - 4) / (font * LETTER))));
    const rows = svg.querySelector(".rows"), columns = svg.querySelector(".columns");
    rows.replaceChildren();
    columns.replaceChildren();
    for (let i = 0; i < view.count; i++) {
      const middle = (i + 0.5) * cell;
      const row = view.row + i, column = view.column + i;
      // Where names are thinned, the one pointed at takes the place of its neighbours.
      if (named(i, row, state.row, step)) {
        rows.append(label(row, state.row, { x: left - 4, y: top + middle + font * 0.35, "text-anchor": "end" }, font, letters));
      }
      if (named(i, column, state.column, step)) {
        const x = left + middle + font * 0.3, y = top - 4;
        columns.append(label(column, state.column, { x, y, transform: `rotate(-60 ${x} ${y})` }, font, letters));
      }
    }
  }

  function named(i, position, chosen, step) {
    if (position === chosen) return true;
    const near = chosen >= 0 && Math.abs(position - chosen) < step;
    return i % step === 0 && !near;
  }

  function label(position, chosen, attributes, font, letters) {
    const name = data.classes[state.order[position]];
    const text = element("text", { ...attributes, "font-size": font });
    if (position === chosen) text.setAttribute("class", "found");
    text.textContent = name.length > letters ? `${name.slice(0, letters - 1)}…` : name;
    return text;
  }

  function key(svg, largest) {
    svg.querySelectorAll(".key text").forEach((text, i) => {
      const share = (100 * largest * 3 * i) / STRENGTHS;
      text.textContent = `${share.toFixed(share >= 2 || i === 0 ? 0 : 1)}%`;
    });
  }

  // What is said

  function tell() {
    if (state.row < 0) return;
    const method = data.methods[state.method];
    const residual = unpacked(method.residual[state.frame]), test = unpacked(method.test);
    const i = state.order[state.row], lines = [];
    if (state.column >= 0 && state.column !== state.row) {
      const j = state.order[state.column], facts = [];
      if (residual) facts.push(`residual label ${share(residual[i * size + j])} at epoch ${method.epochs[state.frame]}`);
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
    readout.replaceChildren(...lines.map((line) => {
      const paragraph = document.createElement("p");
      paragraph.textContent = line;
      return paragraph;
    }));
  }

  // What can be done

  function search(words) {
    const wanted = words.trim().toLowerCase();
    if (!wanted) {
      state.row = state.column = -1;
      zoom(Infinity);
      say([]);
      return;
    }
    const names = data.names || data.classes;
    const ranks = [(name) => name === wanted, (name) => name.startsWith(wanted), (name) => name.includes(wanted)];
    const lower = names.map((name) => name.toLowerCase());
    const matches = [...new Set(ranks.flatMap((rank) => lower.flatMap((name, i) => (rank(name) ? [i] : []))))];
    if (!matches.length) {
      say([`No class is called “${words.trim()}”.`]);
      return;
    }
    const position = state.order.indexOf(data.classes.indexOf(names[matches[0]]));
    if (position < 0) {
      say([`${names[matches[0]]} is not among the ${size} classes drawn here. ${data.rows[matches[0]]}`]);
      return;
    }
    state.row = position;
    state.column = -1;
    if (size > 2 * FOUND_SHOWN) view.count = FOUND_SHOWN;
    move(position, position);
    draw();
    tell();
    const others = matches.slice(1, 9).map((i) => names[i]);
    if (others.length) {
      const more = document.createElement("p");
      more.textContent = `Also found: ${others.join(", ")}${matches.length > 9 ? ", …" : ""}.`;
      readout.append(more);
    }
  }

  function reorder(order) {
    const classOf = (position) => (position < 0 ? -1 : state.order[position]);
    const [row, column] = [classOf(state.row), classOf(state.column)];
    state.order = order;
    state.row = order.indexOf(row);
    state.column = order.indexOf(column);
    if (state.row >= 0) move(state.row, state.column < 0 ? state.row : state.column);
    draw();
  }

  function zoom(factor) {
    view.count = Math.round(Math.min(size, Math.max(Math.min(FEWEST_SHOWN, size), view.count * factor)));
    move(state.row < 0 ? 0 : state.row, state.column < 0 ? Math.max(state.row, 0) : state.column);
    draw();
  }

  // Put a square into the middle of what is shown, as far as the map reaches.
  function move(row, column) {
    const within = (middle) => Math.min(Math.max(middle - Math.floor(view.count / 2), 0), size - view.count);
    view.row = within(row);
    view.column = within(column);
  }

  function pressed(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const zooms = { "+": 0.5, "=": 0.5, "-": 2, 0: Infinity };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in zooms) zoom(zooms[event.key]);
    else if (event.key in steps) {
      const clamp = (value) => Math.min(Math.max(value, 0), size - 1);
      const started = state.row >= 0 && state.column >= 0;
      state.row = started ? clamp(state.row + steps[event.key][0]) : Math.max(state.row, 0);
      state.column = started ? clamp(state.column + steps[event.key][1]) : Math.max(state.column, 0);
      const outside = (position, start) => position < start || position >= start + view.count;
      if (outside(state.row, view.row) || outside(state.column, view.column)) move(state.row, state.column);
      draw();
      tell();
    } else return;
    event.preventDefault();
  }

  function pointed(event, cells) {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(cells.getScreenCTM().inverse());
    const inside = (value) => Math.min(Math.max(Math.floor(value), 0), size - 1);
    const row = inside(place.y), column = inside(place.x);
    if (row === state.row && column === state.column) return;
    Object.assign(state, { row, column });
    for (const { svg, cells: own } of panels) {
      cursor(own);
      labels(svg, own);
    }
    tell();
  }

  function play() {
    const slider = find("epoch"), last = Number(slider.max);
    find("play").textContent = "Stop";
    state.frame = -1;
    const next = () => {
      if (state.frame >= last) return stop();
      state.frame += 1;
      slider.value = state.frame;
      draw();
    };
    next();
    timer = setInterval(next, 700);
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    find("play").textContent = "Play";
  }
}

function panel(figure) {
  const svg = figure.querySelector("svg.heatmap"), cells = svg.querySelector("svg.cells");
  const side = Number(cells.getAttribute("viewBox").split(" ")[2]);
  const target = element("rect", { class: "target", x: 0, y: 0, width: side, height: side, "fill-opacity": 0 });
  cells.prepend(target); // so that empty squares can be pointed at, too
  return { figure, svg, cells, kind: figure.dataset.kind };
}

// A byte is 255 times the square root of a share; see `pack` in heatmap.py.
function unpacked(text) {
  if (!text) return null;
  if (!unpackedBefore.has(text)) {
    unpackedBefore.set(text, Float32Array.from(atob(text), (letter) => (letter.charCodeAt(0) / 255) ** 2));
  }
  return unpackedBefore.get(text);
}

function strength(share) {
  return Math.round(STRENGTHS * Math.min(Math.max(share, 0), 1));
}

function share(value) {
  if (value === 0) return "0%";
  return `${(100 * value).toFixed(value < 0.02 ? 1 : 0)}%`;
}

function element(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
