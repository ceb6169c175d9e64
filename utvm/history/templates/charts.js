// Charts of a model's figures: drag to zoom into a time range, double-click to show everything again.
"use strict";
const cssValue = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const draw = (element) => {
  const lines = JSON.parse(element.querySelector("script").textContent);
  const colours = ["--link", "--failed", "--passed", "--infrastructure", "--error", "--skipped", "--plain", "--ink"];
  const gridLine = { stroke: cssValue("--line"), width: 1 };
  const axis = { stroke: cssValue("--soft"), grid: gridLine, ticks: gridLine };
  const moment = (at, from, to) => (at ? new Date(1000 * at).toISOString().slice(from, to).replace("T", " ") : "");
  const formatNumber = (value) => (value === null || value === undefined ? "" : value.toLocaleString("en"));
  const series = lines.map((line, number) => ({
    label: line.name,
    stroke: cssValue(colours[number]),
    width: 1.5,
    spanGaps: true,
    paths: uPlot.paths.stepped({ align: 1 }),
    value: (_, value) => formatNumber(value),
  }));
  const options = {
    width: element.clientWidth,
    height: 220,
    series: [{ label: "UTC", value: (_, at) => moment(at, 0, 16) }, ...series],
    axes: [
      { ...axis, values: (_, times) => times.map((at) => moment(at, 5, 10)) },
      { ...axis, size: 84, values: (_, values) => values.map(formatNumber) },
    ],
    cursor: { drag: { x: true, y: false } },
  };
  return new uPlot(options, uPlot.join(lines.map((line) => [line.times, line.values])), element);
};
const charts = [...document.querySelectorAll(".chart")].map((element) => ({ element, chart: draw(element) }));
window.addEventListener("resize", () => {
  for (const { element, chart } of charts) chart.setSize({ width: element.clientWidth, height: 220 });
});
