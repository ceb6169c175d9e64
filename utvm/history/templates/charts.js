// Charts of a model's figures: a stretch that is dragged over is zoomed into, a double click shows everything again.
"use strict";
const seen = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const drawn = (place) => {
  const lines = JSON.parse(place.querySelector("script").textContent);
  const colours = ["--link", "--failed", "--passed", "--infrastructure", "--error", "--skipped", "--plain", "--ink"];
  const thin = { stroke: seen("--line"), width: 1 };
  const axis = { stroke: seen("--soft"), grid: thin, ticks: thin };
  const moment = (at, from, to) => (at ? new Date(1000 * at).toISOString().slice(from, to).replace("T", " ") : "");
  const spoken = (value) => (value === null || value === undefined ? "" : value.toLocaleString("en"));
  const series = lines.map((line, number) => ({
    label: line.name,
    stroke: seen(colours[number]),
    width: 1.5,
    spanGaps: true,
    paths: uPlot.paths.stepped({ align: 1 }),
    value: (_, value) => spoken(value),
  }));
  const options = {
    width: place.clientWidth,
    height: 220,
    series: [{ label: "UTC", value: (_, at) => moment(at, 0, 16) }, ...series],
    axes: [
      { ...axis, values: (_, times) => times.map((at) => moment(at, 5, 10)) },
      { ...axis, size: 84, values: (_, values) => values.map(spoken) },
    ],
    cursor: { drag: { x: true, y: false } },
  };
  return new uPlot(options, uPlot.join(lines.map((line) => [line.times, line.values])), place);
};
const charts = [...document.querySelectorAll(".chart")].map((place) => ({ place, chart: drawn(place) }));
window.addEventListener("resize", () => {
  for (const { place, chart } of charts) chart.setSize({ width: place.clientWidth, height: 220 });
});
