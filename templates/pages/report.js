"use strict";
for (const button of document.querySelectorAll("button[data-copy]")) {
  const source = document.getElementById(button.dataset.copy), label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Selected; press Ctrl-C";
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}
const flame = document.getElementById("flame");
if (flame) {
  const boxes = [...flame.querySelectorAll(".box")].map(node => ({
    node, x: parseFloat(node.getAttribute("x")), width: parseFloat(node.getAttribute("width")),
    level: Number(node.dataset.level), lines: node.querySelector("title").textContent.split("\n"),
  }));
  const find = document.getElementById("flame-find"), found = document.getElementById("flame-found");
  const reset = document.getElementById("flame-reset"), detail = document.getElementById("flame-detail");
  let root = boxes[0], current = boxes[0];
  document.getElementById("flame-tools").hidden = false;
  flame.setAttribute("role", "group");
  for (const box of boxes) {
    box.text = box.lines.join("\n").toLowerCase();
    box.node.setAttribute("role", "button");
    box.node.setAttribute("tabindex", box === current ? "0" : "-1");
    box.node.setAttribute("aria-label", box.lines[0]);
    box.node.addEventListener("click", () => choose(box, true));
  }
  const inside = (inner, outer) => inner.x >= outer.x - 0.001 && inner.x + inner.width <= outer.x + outer.width + 0.001;
  function draw() {
    const scale = 100 / root.width;
    for (const box of boxes) {
      const isBelow = box.level >= root.level && inside(box, root), isAbove = box.level < root.level && inside(root, box);
      box.node.classList.toggle("hidden", !isBelow && !isAbove);
      box.node.setAttribute("x", `${isBelow ? (box.x - root.x) * scale : 0}%`);
      box.node.setAttribute("width", `${isBelow ? box.width * scale : 100}%`);
    }
    reset.disabled = root === boxes[0];
  }
  function choose(box, zooms) {
    current.node.setAttribute("tabindex", "-1");
    current.node.classList.remove("chosen");
    current = box;
    box.node.setAttribute("tabindex", "0");
    box.node.classList.add("chosen");
    detail.querySelector("p").textContent = box.lines[0];
    detail.querySelector("ol").replaceChildren(...box.lines.slice(1).map(line => {
      const row = document.createElement("li");
      row.textContent = line;
      return row;
    }));
    detail.hidden = false;
    if (zooms) { root = box; draw(); }
  }
  function search() {
    const word = find.value.trim().toLowerCase();
    let hits = 0, share = 0, end = -1;
    for (const box of [...boxes].sort((a, b) => a.x - b.x || a.level - b.level)) {
      const isHit = word !== "" && box.text.includes(word);
      box.node.classList.toggle("miss", word !== "" && !isHit);
      if (!isHit) continue;
      hits += 1;
      if (box.x >= end - 0.001) { share += box.width; end = box.x + box.width; }
    }
    found.textContent = word ? `${hits} of ${boxes.length} boxes, ${Math.round(share / boxes[0].width * 100)} % of the samples` : "";
  }
  function unzoom() { root = boxes[0]; draw(); }
  find.addEventListener("input", search);
  reset.addEventListener("click", unzoom);
  flame.addEventListener("keydown", event => {
    const near = boxes.filter(box => !box.node.classList.contains("hidden"));
    const steps = {
      ArrowDown: () => near.find(box => box.level === current.level + 1 && inside(box, current)),
      ArrowUp: () => near.find(box => box.level === current.level - 1 && inside(current, box)),
      ArrowRight: () => near.filter(box => box.level === current.level && box.x > current.x).sort((a, b) => a.x - b.x)[0],
      ArrowLeft: () => near.filter(box => box.level === current.level && box.x < current.x).sort((a, b) => b.x - a.x)[0],
      Enter: () => current,
    };
    if (event.key === "Escape") { unzoom(); return; }
    const next = steps[event.key] && steps[event.key]();
    if (!next) return;
    event.preventDefault();
    choose(next, event.key === "Enter");
    next.node.focus();
  });
}
