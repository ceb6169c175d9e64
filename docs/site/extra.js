// SPDX-License-Identifier: Apache-2.0
// Names for a screen reader and stops for the keyboard where the theme gives none.
"use strict";
document$.subscribe(() => {
  document.querySelector("[data-md-component=search]")?.setAttribute("aria-label", "Search");
  const labels = new Set();
  document.querySelectorAll("nav.md-nav[aria-label]").forEach((nav, number) => {
    const name = nav.getAttribute("aria-label");
    if (labels.has(name)) nav.setAttribute("aria-label", `${name}, ${number}`);
    labels.add(name);
  });
  const label = () => {
    document.querySelectorAll("pre code, .md-typeset__scrollwrap").forEach((area) => { area.tabIndex = 0; });
    document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((nav, number) => {
      nav.setAttribute("aria-label", `Code block ${number + 1}`);
      nav.querySelectorAll("button").forEach((button) => button.setAttribute("aria-label", button.title));
    });
  };
  label();
  new MutationObserver(label).observe(document.body, { childList: true, subtree: true });
});
