// Filters tests by words and outcomes, and folds them. Without this script, all tests are shown and can be folded.
"use strict";
for (const panel of document.querySelectorAll("[data-finder]")) {
  const controls = panel.querySelector(".controls");
  const words = controls.querySelector("input");
  const outcomes = [...controls.querySelectorAll("[data-show]")];
  const fold = controls.querySelector("[data-fold]");
  const found = controls.querySelector("[role=status]");
  const suites = [...panel.querySelectorAll("details.suite")];
  const tests = [...panel.querySelectorAll(".tests li")].map((item) => ({ item, text: item.textContent.toLowerCase() }));

  const apply = () => {
    const asked = words.value.toLowerCase().split(" ").filter(Boolean);
    const shown = outcomes.filter((each) => each.getAttribute("aria-pressed") === "true");
    const wanted = new Set(shown.map((each) => each.dataset.show));
    let count = 0;
    for (const { item, text } of tests) {
      const fits = (!wanted.size || wanted.has(item.dataset.outcome)) && asked.every((word) => text.includes(word));
      item.hidden = !fits;
      count += fits;
    }
    for (const suite of suites) {
      const left = suite.querySelector(".tests li:not([hidden])");
      suite.hidden = !left;
      if (left && (asked.length || wanted.size)) suite.open = true;
    }
    found.textContent = count === tests.length ? `${count} tests` : `${count} of ${tests.length} tests`;
    name();
  };
  const name = () => { fold.textContent = suites.some((each) => each.open) ? "Fold all" : "Unfold all"; };

  words.addEventListener("input", apply);
  for (const each of outcomes) {
    each.addEventListener("click", () => {
      each.setAttribute("aria-pressed", String(each.getAttribute("aria-pressed") !== "true"));
      apply();
    });
  }
  fold.addEventListener("click", () => {
    const open = !suites.some((each) => each.open);
    for (const each of suites) each.open = open;
    name();
  });
  for (const each of suites) each.addEventListener("toggle", name);
  controls.hidden = false;
  apply();
}
