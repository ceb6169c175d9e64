// Draws a model's graph, costs and flame graph, and links them with its memory plan and table: a click chooses a layer.
"use strict";
const node = (name, attributes = {}, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};
const picture = (width, height, label) => node("svg", {
  viewBox: `0 0 ${width} ${height}`, width, height, class: "drawn", role: "img", "aria-label": label,
});
const number = (value) => value.toLocaleString("en");
const short = (value) => new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format(value);
const cut = (text, length) => (text.length <= length ? text : length > 2 ? `${text.slice(0, length - 1)}…` : "");
const box = (step, x, y, width, height, label, hint) => node("g", step ? { "data-key": step.key } : {},
  node("title", {}, hint),
  node("rect", { x, y, width: Math.max(width, 0.5), height, rx: 2, class: step ? step.colour : "whole" }),
  node("text", { x: x + 5, y: y + height / 2 + 4, class: "on" }, label));
// The geometry of the memory plan, plan.svg.j2: both have a column for each step, one before and one after.
const [LEFT, TOP, WIDE, NODE, HIGH] = [84, 24, 820, 220, 40];

const columnOf = (steps) => WIDE / (steps.length + 2);

const drawGraph = ({ title, steps }) => {
  const maker = new Map(), rows = [];
  for (const step of steps) {
    step.from = [...new Set(step.reads.map((name) => maker.get(name)).filter(Boolean))];
    step.rank = Math.max(-1, ...step.from.map((before) => before.rank)) + 1;
    (rows[step.rank] ??= []).push(step);
    step.place = rows[step.rank].length - 1;
    for (const name of step.writes) maker.set(name, step);
  }
  const across = Math.max(1, ...rows.map((row) => row.length)) * (NODE + 16);
  const long = steps.flatMap((step) => step.from.filter((before) => step.rank > before.rank + 1).map((before) => [before, step]));
  const svg = picture(across + 10 * Math.min(long.length, 6) + 4, rows.length * (HIGH + 22), `graph of ${title}`);
  const [left, top] = [(step) => 2 + step.place * (NODE + 16), (step) => 2 + step.rank * (HIGH + 22)];
  for (const step of steps) {
    for (const before of step.from) {
      const [x, y, u, v] = [left(before) + NODE / 2, top(before) + HIGH, left(step) + NODE / 2, top(step)];
      const lane = across + 10 * (long.findIndex(([one, other]) => one === before && other === step) % 6) - 8;
      const direct = `M${x} ${y}C${x} ${y + 14} ${u} ${v - 14} ${u} ${v}`;
      const around = `M${x} ${y}C${x} ${y + 16} ${lane} ${y} ${lane} ${y + 30}V${v - 30}C${lane} ${v} ${u} ${v - 16} ${u} ${v}`;
      svg.append(node("path", { d: step.rank > before.rank + 1 ? around : direct }));
    }
  }
  for (const step of steps) {
    const item = box(step, left(step), top(step), NODE, HIGH, "", `${step.number} ${step.key}, ${step.kind}`);
    const line = (text, down) => node("text", { x: left(step) + 6, y: top(step) + down, class: "on" }, cut(text, 32));
    item.append(line(`${step.number} ${step.kind}`, 16), line(step.key, 32));
    svg.append(item);
  }
  return svg;
};

const drawCosts = ({ title, unit, steps }) => {
  const high = 140, most = Math.max(1, ...steps.map((step) => step.cost)), column = columnOf(steps);
  const svg = picture(940, high + TOP + 42, `${unit} of each step of ${title}; the table has the numbers`);
  const area = svg.appendChild(node("g", { transform: `translate(${LEFT} ${TOP})` }));
  area.append(node("text", { x: -72, y: -10, class: "axis" }, unit));
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const y = high * (1 - part);
    area.append(node("line", { x2: WIDE, y1: y, y2: y, class: "grid" }));
    area.append(node("text", { x: -8, y: y + 4, "text-anchor": "end", class: "axis" }, short(part * most)));
  }
  for (const step of steps) {
    const height = (high * step.cost) / most;
    area.append(box(step, (step.number + 1) * column, high - height, column, height, "", `${step.key}: ${number(step.cost)} ${unit}`));
    if (step.number % Math.ceil(steps.length / 24) === 0) {
      area.append(node("text", { x: (step.number + 1.5) * column, y: high + 16, "text-anchor": "middle", class: "axis" }, String(step.number)));
    }
  }
  area.append(node("text", { x: WIDE / 2, y: high + 34, "text-anchor": "middle", class: "axis" }, "step"));
  return svg;
};

// Rows: the model, adjacent steps of one kind, each step. `from` and `to` are costs: the part that is shown.
const drawFlame = ({ title, unit, steps, total }, from, to, zoom) => {
  const svg = picture(900, 132, `flame graph: ${unit} of each step of ${title}; the table has the numbers`);
  const scale = 900 / (to - from);
  const put = (step, row, begin, cost, name) => {
    const [x, end] = [Math.max(0, (begin - from) * scale), Math.min(900, (begin + cost - from) * scale)];
    if (end - x < 0.3) return;
    const hint = `${name}: ${number(cost)} ${unit}, ${((100 * cost) / total).toFixed(1)} %`;
    const item = box(step, x, 2 + 30 * row, end - x, 29, cut(name, Math.floor((end - x - 10) / 6.8)), hint);
    if (row === 1) item.removeAttribute("data-key");
    item.addEventListener("click", () => zoom(begin, begin + cost));
    svg.append(item);
  };
  put(null, 0, 0, total, title);
  let begin = 0, group = 0;
  steps.forEach((step, index) => {
    put(step, 2, begin, step.cost, `${step.number} ${step.key}`);
    begin += step.cost;
    if (steps[index + 1]?.kind !== step.kind) {
      put(step, 1, group, begin - group, step.kind);
      group = begin;
    }
  });
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    svg.append(node("text", { x: 900 * part, y: 112, "text-anchor": anchor, class: "axis" }, short(from + part * (to - from))));
  }
  svg.append(node("text", { x: 450, y: 128, "text-anchor": "middle", class: "axis" }, unit));
  return svg;
};

// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: times are microseconds.
const traceOf = ({ title, unit, steps }) => {
  const perMicrosecond = unit === "ns" ? 1000 : 1;
  let at = 0;
  const traceEvents = [];
  for (const { key, kind, kernel, macs, cost, live_bytes: live } of steps) {
    traceEvents.push({ name: key, cat: kind, ph: "X", ts: at, dur: cost / perMicrosecond, pid: 1, tid: 1, args: { kernel, macs, [unit]: cost } });
    if (live !== undefined) traceEvents.push({ name: "arena in use", ph: "C", ts: at, pid: 1, args: { bytes: live } });
    at += cost / perMicrosecond;
  }
  const scale = unit === "ns" ? "time" : `1 us stands for 1 of: ${unit}`;
  return JSON.stringify({ traceEvents, otherData: { model: title, unit, scale } });
};

// On a narrow screen, rows become cards: cells need roles and labels.
const complete = (table, steps) => {
  table.classList.add("cards");
  table.setAttribute("role", "table");
  const heads = [...table.querySelectorAll("th")];
  const give = (parts, role) => { for (const part of parts) part.setAttribute("role", role); };
  give([table.tHead, ...table.tBodies], "rowgroup");
  give(table.rows, "row");
  give(heads, "columnheader");
  for (const row of table.tBodies[0].rows) {
    give(row.cells, "cell");
    [...row.cells].forEach((cell, index) => { cell.dataset.label = heads[index].textContent; });
    const first = row.cells[0], link = document.createElement("a");
    row.dataset.key = steps[Number(first.textContent)].key;
    link.href = `#layer=${encodeURIComponent(row.dataset.key)}`;
    link.textContent = first.textContent;
    first.replaceChildren(link);
  }
};

const views = [...document.querySelectorAll("[data-layers]")].map((element) => {
  const view = { element, steps: [], ...JSON.parse(element.querySelector("script").textContent) };
  for (const [name, values] of Object.entries(view.columns)) {
    values.forEach((value, index) => { (view.steps[index] ??= { number: index })[name] = value; });
  }
  for (const step of view.steps) step.writes = step.key.split(", ");
  for (const item of element.querySelectorAll("[data-step]")) {
    if (view.steps[item.dataset.step]) item.dataset.key = view.steps[item.dataset.step].key;
  }
  complete(element.querySelector("table.layers"), view.steps);
  const kinds = [...new Set(view.steps.map((step) => step.kind))];
  for (const step of view.steps) step.colour = `c${kinds.indexOf(step.kind) % 8}`;
  view.total = view.steps.reduce((sum, step) => sum + step.cost, 0);
  const show = (selector, drawing) => {
    const part = element.querySelector(selector);
    (part.querySelector(".wide") ?? part).replaceChildren(drawing);
    part.hidden = false;
  };
  show(".graph", drawGraph(view));
  if (view.total) {
    const zoom = (from, to) => {
      show(".flame", drawFlame(view, from, to, zoom));
      choose();
    };
    show(".costs", drawCosts(view));
    show(".flame", drawFlame(view, 0, view.total, zoom));
    element.querySelector("[data-whole]").addEventListener("click", () => zoom(0, view.total));
    const trace = element.querySelector("[data-trace]");
    trace.href = URL.createObjectURL(new Blob([traceOf(view)], { type: "application/json" }));
  }
  return view;
});

// Shows the layer that the address names, in all pictures and tables of all models.
function choose() {
  const wanted = decodeURIComponent(location.hash.match(/^#layer=(.*)/)?.[1] ?? "");
  for (const { element, steps, unit, total } of views) {
    const step = steps.find(({ key }) => key === wanted);
    for (const item of element.querySelectorAll("[data-key]")) {
      const chosen = Boolean(step) && item.dataset.key === wanted;
      item.classList.toggle("chosen", chosen);
      const frame = item.closest(".graph");
      if (chosen && frame) {
        const [inner, outer] = [item.getBoundingClientRect(), frame.getBoundingClientRect()];
        if (inner.top < outer.top || inner.bottom > outer.bottom) frame.scrollTop += inner.top - outer.top - 60;
      }
    }
    for (const mark of element.querySelectorAll(".now")) mark.remove();
    if (!step) continue;
    for (const area of element.querySelectorAll("svg.plan > g, .costs svg > g")) {
      const column = columnOf(steps), height = area.closest(".plan") ? 340 : 140;
      area.append(node("rect", { x: (step.number + 1) * column, width: column, height, class: "now" }));
    }
    const facts = [`${step.number} ${step.key}: ${step.kind}`, step.kernel, `${number(step.cost)} ${unit}`];
    if (total) facts.push(`${((100 * step.cost) / total).toFixed(1)} %`);
    if (step.live_bytes) facts.push(`${number(step.live_bytes)} B in use`);
    if (step.snr) facts.push(`signal to noise ${step.snr}`);
    element.querySelector(".choice").textContent = facts.filter(Boolean).join(", ");
  }
}
document.addEventListener("click", (event) => {
  const item = event.target.closest("[data-key]");
  if (item && !event.target.closest("a")) location.hash = `layer=${encodeURIComponent(item.dataset.key)}`;
});
window.addEventListener("hashchange", choose);

for (const { element } of views) {
  const controls = element.querySelector(".find");
  const [words, order, found] = ["input", "select", "[role=status]"].map((part) => controls.querySelector(part));
  const body = element.querySelector("tbody"), rows = [...body.rows], heads = [...element.querySelectorAll("th")];
  heads.forEach((head, index) => order.append(new Option(head.textContent, index)));
  const value = (row, index) => {
    const text = row.cells[index].textContent.trim();
    return heads[index].classList.contains("n") ? (text === "exact" ? Infinity : parseFloat(text.replaceAll(",", "")) || 0) : text;
  };
  const sort = (index) => {
    // Numbers from the largest, but steps in their order.
    const sign = index && heads[index].classList.contains("n") ? -1 : 1;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    body.append(...rows.sort((a, b) => sign * compare(value(a, index), value(b, index)) || compare(value(a, 0), value(b, 0))));
    heads.forEach((head, place) => {
      if (place === index) head.setAttribute("aria-sort", sign < 0 ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    order.value = index;
  };
  const filter = () => {
    const wanted = words.value.toLowerCase().split(" ").filter(Boolean);
    for (const row of rows) row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word));
    found.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} layers`;
  };
  words.addEventListener("input", filter);
  order.addEventListener("change", () => sort(Number(order.value)));
  heads.forEach((head, index) => head.addEventListener("click", () => sort(index)));
  controls.hidden = false;
  filter();
}

const sides = document.querySelector("[data-sides]");
if (sides) {
  const [left, right] = sides.querySelectorAll("select");
  const place = () => views.forEach(({ element }, index) => {
    element.hidden = ![left.value, right.value].includes(String(index));
    element.style.order = left.value === String(index) ? 0 : 1;
  });
  right.value = "1";
  for (const side of [left, right]) side.addEventListener("change", place);
  sides.hidden = false;
  place();
}
choose();
