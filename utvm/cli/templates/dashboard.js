// Puts the sections that the server sends into the page, and counts the time of running runs.
"use strict";
const clock = (seconds) => {
  const part = (value) => String(Math.floor(value)).padStart(2, "0");
  return `${part(seconds / 3600)}:${part((seconds / 60) % 60)}:${part(seconds % 60)}`;
};
const count = () => {
  for (const time of document.querySelectorAll("time[data-since]")) {
    const since = Number(time.dataset.since);
    const begun = new Date(1000 * since).toISOString().slice(0, 19).replace("T", " ");
    const running = "running" in time.dataset ? `, for ${clock(Date.now() / 1000 - since)}` : "";
    time.textContent = `since ${begun} UTC${running}`;
  }
};
const state = document.getElementById("state");
const stream = new EventSource("events");
for (const id of ["runs", "night", "farm", "history"]) {
  stream.addEventListener(id, (event) => {
    document.getElementById(id).innerHTML = event.data;
    count();
  });
}
stream.onopen = () => { state.textContent = "live"; };
stream.onerror = () => { state.textContent = "the server does not answer; trying again"; };
setInterval(count, 1000);
