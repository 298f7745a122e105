"use strict";
for (const table of document.querySelectorAll(".heat")) table.scrollLeft = table.scrollWidth;  // the newest run
const bugs = [...document.querySelectorAll(".bug")].map(bug => ({bug, text: bug.textContent.toLowerCase()}));
const words = document.getElementById("words"), status = document.getElementById("status"), kind = document.getElementById("kind");
function filter() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const {bug, text} of bugs) {
    const fits = wanted.every(word => text.includes(word)) && (!status.value || bug.dataset.status === status.value) && (!kind.value || bug.dataset.kind === kind.value);
    bug.classList.toggle("hidden", !fits);
    shown += fits;
  }
  for (const section of document.querySelectorAll("section.group")) section.classList.toggle("hidden", !section.querySelector(".bug:not(.hidden)"));
  document.getElementById("found").textContent = (shown === bugs.length ? "" : `${shown} of `) + `${bugs.length} bug${bugs.length === 1 ? "" : "s"}`;
  const state = new URLSearchParams(Object.entries({q: words.value, status: status.value, kind: kind.value}).filter(row => row[1])).toString();
  history.replaceState(null, "", state ? "#?" + state : location.hash.startsWith("#?") ? "#" : location.hash);
}
if (location.hash.startsWith("#?")) {
  const state = new URLSearchParams(location.hash.slice(2));
  words.value = state.get("q") || ""; status.value = state.get("status") || ""; kind.value = state.get("kind") || "";
}
for (const one of [words, status, kind]) one.addEventListener("input", filter);
const aim = location.hash.startsWith("#bug-") && document.getElementById(location.hash.slice(1));
if (aim) aim.open = true;
addEventListener("hashchange", () => { const one = document.getElementById(location.hash.slice(1)); if (one && one.tagName === "DETAILS") one.open = true; });
filter();
