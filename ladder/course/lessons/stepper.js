// The debugger's table in a notebook: a slider over the recorded moments of a warp. The model has `moments` and
// `source` (see ladder/debugger/recording.py), `index`, and `warps` with the chosen `warp`.
const STYLE = `
.ladder-steps { font: 13px/1.4 system-ui, sans-serif; color: #222; background: #fff; padding: 8px; max-width: 100%; }
.ladder-steps .bar { display: flex; gap: 8px; align-items: center; flex-wrap: wrap; }
.ladder-steps input[type=range] { flex: 1 1 12em; min-width: 8em; }
.ladder-steps .sides { display: flex; gap: 12px; flex-wrap: wrap; align-items: flex-start; margin-top: 6px; }
.ladder-steps pre, .ladder-steps table { font: 12px/1.35 ui-monospace, Menlo, Consolas, monospace; margin: 0; color: #222; }
.ladder-steps pre { flex: 1 1 24em; overflow: auto; max-height: 34em; background: #f8f8f8; padding: 4px 0; }
.ladder-steps pre div { padding: 0 6px; white-space: pre; }
.ladder-steps pre div.here { background: #ffe8a3; font-weight: bold; }
.ladder-steps .values { flex: 1 1 24em; overflow: auto; max-height: 34em; }
.ladder-steps table { border-collapse: collapse; margin-bottom: 6px; }
.ladder-steps th, .ladder-steps td { text-align: right; padding: 0 8px; border-bottom: 1px solid #eee; background: #fff; color: #222; }
.ladder-steps td.changed { background: #cfe8fa; font-weight: bold; }
.ladder-steps .reason { color: #a03000; font-weight: bold; }
`;

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/// A table of rows; cells whose text was another one before are marked.
function table(head, rows, before) {
  const made = element("table");
  if (head.length) made.append(element("tr", {}, ...head.map((name) => element("th", { textContent: name }))));
  rows.forEach((row, y) => {
    const cells = row.map((text, x) => {
      const changed = x > 0 && before && before[y] && before[y][x] !== text;
      return element("td", { textContent: text, className: changed ? "changed" : "" });
    });
    made.append(element("tr", {}, ...cells));
  });
  return made;
}

/// The values of a moment in the rows of another one, so that both can be compared.
function values(moment, names) {
  const found = Object.fromEntries(moment.same);
  return names.map((name) => [name, found[name]]);
}

function lanes(moment, names) {
  return moment.lanes.map((row, lane) => [String(lane), ...names.map((name) => row[moment.differing.indexOf(name)])]);
}

function render({ model, el }) {
  const place = element("span"), reason = element("div", { className: "reason" });
  const source = element("pre"), shown = element("div", { className: "values" });
  const slider = element("input", { type: "range", min: 0, ariaLabel: "step" });
  const warps = element("select", { ariaLabel: "warp" });
  const button = (text, label, by) => {
    const made = element("button", { textContent: text, ariaLabel: label, title: label });
    made.onclick = () => move(model.get("index") + by);
    return made;
  };
  const move = (index) => {
    model.set("index", Math.max(0, Math.min(model.get("moments").length - 1, index)));
    model.save_changes();
  };
  slider.oninput = () => move(Number(slider.value));
  warps.onchange = () => {
    model.set("warp", warps.selectedIndex);
    model.save_changes();
  };

  const lines = model.get("source").map((text, number) =>
    element("div", { textContent: `${String(number + 1).padStart(4)}  ${text}` }));
  source.append(...lines);

  const update = () => {
    const moments = model.get("moments"), index = Math.min(model.get("index"), moments.length - 1);
    const now = moments[index], before = moments[index - 1];
    slider.max = moments.length - 1;
    slider.value = index;
    warps.replaceChildren(...model.get("warps").map((name) => element("option", { textContent: name })));
    warps.selectedIndex = model.get("warp");
    const where = now.line ? `: ${now.file}:${now.line} in ${now.function}, ${now.together}` : "";
    place.textContent = `step ${index + 1} of ${moments.length}${where}`;
    reason.textContent = now.reason;
    lines.forEach((line) => line.classList.remove("here"));
    const here = lines[now.line - 1];
    if (here && now.in_source) {
      here.classList.add("here");
      source.scrollTop = here.offsetTop - source.offsetTop - source.clientHeight / 2;
    }
    const names = now.same.map((pair) => pair[0]);
    shown.replaceChildren(table([], values(now, names), before && values(before, names)));
    if (now.differing.length)
      shown.append(table(["lane", ...now.differing], lanes(now, now.differing), before && lanes(before, now.differing)));
  };
  model.on("change:index", update);
  model.on("change:moments", update);
  el.append(
    element("style", { textContent: STYLE }),
    element("div", { className: "ladder-steps" },
      element("div", { className: "bar" }, warps, button("◀", "one line back", -1), slider, button("▶", "one line on", 1)),
      place, reason, element("div", { className: "sides" }, source, shown)));
  update();
}

export default { render };
