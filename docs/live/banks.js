// The page of one access: reads the fields, asks the emulator's bank model, draws the banks.
import { BANKS, LANES, accessOf, accessText, banksOf, isMatrix, lanesOf, lanesText, remediesFor, served, usedLanes }
  from "./access.js";
import loadModel from "./bank_model.js";
import { element } from "./elements.js";
import { Refusal } from "./expression.js";

const $ = (id) => document.getElementById(id);
const FIELDS = ["op", "width", "address", "swizzle", "active"];
const { widths, presets } = JSON.parse($("data").textContent);

/// The emulator's bank model as a function of an access.
async function bankModel() {
  const module = await loadModel();
  const memory = module._malloc(4 * LANES);
  return (access) => {
    const lanes = usedLanes(access), mask = lanes.reduce((sum, lane) => sum + 2 ** lane, 0);
    module.HEAPU32.fill(0, memory / 4, memory / 4 + LANES);
    for (const lane of lanes) module.HEAPU32[memory / 4 + lane] = access.addresses[lane];
    const at = module.ccall("bank_access", "number", ["string", "number", "number", "number"],
      [access.op, access.width, memory, mask]);
    if (!at) throw new Refusal(module.ccall("bank_message", "string", [], []));
    const [wavefronts, conflicts, ideal, count, ...passes] = module.HEAPU32.slice(at / 4, at / 4 + 4 + 2 * LANES);
    return { wavefronts, conflicts, ideal, passes: Array.from({ length: count }, (_, number) => (
      { lanes: lanesOf(passes[2 * number]), wavefronts: passes[2 * number + 1] })) };
  };
}

// --- the fields

const options = (values) => values.map((one) => element("option", { value: one, textContent: one }));

function offerWidths() {
  const { op, width } = { op: $("op").value, width: $("width").value };
  $("unit").textContent = isMatrix(op) ? "8x8 tiles" : "Bytes per lane";
  $("width").replaceChildren(...options(widths[op]));
  $("width").value = widths[op].map(String).includes(width) ? width : 4;
}

function usePreset({ name, ...values }) {
  $("op").value = values.op;
  offerWidths();
  for (const field of FIELDS) $(field).value = values[field] ?? "";
  show();
}

function fields() {
  const texts = Object.fromEntries(FIELDS.map((name) => [name, $(name).value.trim()]));
  return { ...texts, address: $("address").value, width: Number(texts.width) };
}

/// As a shell takes it.
const inQuotes = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function commandText({ op, width, address, swizzle, active }) {
  const given = [swizzle && `--swizzle ${inQuotes(swizzle)}`, active && `--active ${inQuotes(active)}`];
  return ["ladder bank", op, inQuotes(address), `--width ${width}`, ...given.filter(Boolean)].join(" ");
}

// --- the result

const counted = (number, noun, plural = `${noun}s`) => `${number} ${number === 1 ? noun : plural}`;
const lanesNamed = (lanes) => `${lanes.length > 1 ? "lanes" : "lane"} ${lanesText(lanes)}`;
const swizzleText = ({ bits, base, shift }) => `swizzle<${bits}, ${base}, ${shift}>`;

function show() {
  const values = fields();
  $("command").textContent = commandText(values);
  try {
    const { plain, access } = accessOf(values), service = served(access, model);
    const advice = remediesFor(plain, service.conflicts, model);
    $("error").textContent = "";
    $("said").textContent = summary(access, service);
    $("advice").replaceChildren(...adviceOf(service, advice));
    $("passes").replaceChildren(...service.passes.map((one, number) => panel(one, number, service.passes.length)));
    $("lanes").replaceChildren(...lanesTables(access, service));
    $("result").hidden = false;
    window.live = { text: $("said").textContent, ...service, ...advice };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    $("said").textContent = "This is no access:";
    $("error").textContent = error.message;
    $("result").hidden = true;
    window.live = { error: error.message };
  }
}

function summary(access, { wavefronts, conflicts, ideal, passes }) {
  const of = `${counted(wavefronts, "wavefront")} in ${counted(passes.length, "pass", "passes")}`;
  const found = conflicts ? counted(conflicts, "conflict") : "no conflict";
  return `${accessText(access)}:  ${of},  ${found}  (its distinct bytes would fit ${counted(ideal, "wavefront")})`;
}

function adviceOf({ conflicts }, { remedies, best }) {
  if (!conflicts) return [];
  const button = (one) => element("button", { type: "button", textContent: swizzleText(one), onclick: () => {
    $("swizzle").value = `${one.bits},${one.base},${one.shift}`;
    show();
  } });
  if (remedies.length)
    return [element("p", { className: "choice" }, "No conflict is left with the addresses swizzled by", ...remedies.map(button))];
  const nothing = "No swizzle<B, M, S> of the addresses takes all these conflicts away.";
  if (!best) return [element("p", { textContent: nothing })];
  return [element("p", { className: "choice" }, nothing, button(best), `leaves ${counted(best.conflicts, "conflict")}.`)];
}

function lanesTables(access, { passes }) {
  const used = new Set(usedLanes(access));
  const rowOf = (lane) => {
    if (!used.has(lane)) return [lane, "-", "", "", ""];
    const pass = passes.findIndex((one) => one.lanes.includes(lane));
    const cell = passes[pass].cells.find((one) => one.lanes.includes(lane));
    return [lane, access.addresses[lane].toLocaleString("en"), lanesText(banksOf(access, lane)), pass + 1, cell.wavefront + 1];
  };
  const row = (tag, cells) => element("tr", {}, ...cells.map((textContent) => element(tag, { textContent })));
  const head = ["lane", "address", "banks", "pass", "wavefront"];
  return [0, 8, 16, 24].map((first) => element("table", {}, row("th", head),
    ...[...Array(8).keys()].map((lane) => row("td", rowOf(first + lane)))));
}

// --- the picture of a pass: a row per wavefront, a column per bank

const COLUMN = 28, ROW = 22, LABELS = 92, CHARACTER = 6.7;

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function panel(one, number, count) {
  const of = count > 1 ? `pass ${number + 1} of ${count}, ` : "";
  const heading = `${of}${lanesNamed(one.lanes)}: ${counted(one.wavefronts, "wavefront")}`;
  return element("figure", {}, element("figcaption", { textContent: heading }),
    element("div", { className: "wide" }, picture(one, heading)));
}

function picture(one, heading) {
  const width = LABELS + BANKS * COLUMN, height = ROW * (one.wavefronts + 1);
  const text = (x, y, words, kind) => drawn("text", { x, y: y + 15, class: kind }, words);
  const banks = [...Array(BANKS).keys()];
  const made = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" },
    drawn("title", {}, `${heading}. ${inWords(one)}`), text(LABELS - 8, 0, "bank", "label"),
    ...banks.map((bank) => text(LABELS + (bank + 0.5) * COLUMN, 0, bank, "bank")));
  for (let wavefront = 0; wavefront < one.wavefronts; ++wavefront) {
    const y = ROW * (wavefront + 1);
    made.append(text(LABELS - 8, y, `wavefront ${wavefront + 1}`, "label"),
      ...banks.map((bank) => text(LABELS + (bank + 0.5) * COLUMN, y, "·", "bank")));
  }
  for (const cell of one.cells) {
    const x = LABELS + cell.bank * COLUMN, y = ROW * (cell.wavefront + 1), room = cell.banks * COLUMN;
    const kind = cell.wavefront ? "waits" : "first", lanes = lanesText(cell.lanes);
    const words = lanes.length * CHARACTER < room - 4 ? lanes : `${cell.lanes[0]}+`;
    made.append(drawn("rect", { x: x + 1, y: y + 1, width: room - 2, height: ROW - 2, rx: 3, class: kind }),
      text(x + room / 2, y, words, kind));
  }
  return made;
}

/// What the picture shows, for readers who do not see it.
function inWords({ wavefronts, cells }) {
  return [...Array(wavefronts).keys()].map((wavefront) => {
    const own = cells.filter((cell) => cell.wavefront === wavefront).map(({ bank, banks, lanes }) =>
      `${lanesNamed(lanes)} in bank${banks > 1 ? `s ${bank}-${bank + banks - 1}` : ` ${bank}`}`);
    return `Wavefront ${wavefront + 1}: ${own.join("; ")}.`;
  }).join(" ");
}

const model = await bankModel().catch((error) => {
  $("said").textContent = `The bank model does not run in this browser: ${error.message}`;
  throw error;
});
$("op").append(...options(Object.keys(widths)));
$("preset").append(...presets.map(({ name }) => element("option", { textContent: name })));
$("preset").onchange = () => usePreset(presets[$("preset").selectedIndex]);
$("fields").onsubmit = (event) => event.preventDefault();
$("fields").oninput = ({ target }) => {
  if (target === $("preset")) return;
  $("preset").selectedIndex = -1;
  if (target === $("op")) offerWidths();
  show();
};
usePreset(presets[0]);
