// A rung in the browser: chooses a problem, has the worker run it, shows the counts, the findings, and a warp's
// steps. The data are those of docs/live_pages.py.
import { compiledSource, compilerIsHere, showEditor } from "./editor.js";
import { element } from "./elements.js";
import stepper from "./stepper.js";

const $ = (id) => document.getElementById(id);
const STEPS = 200;
/// What the table of lines shows: the counter and its heading.
const LINE_COLUMNS = [["executed", "instructions"], ["wavefronts_ld", "wavefronts, loads"],
                      ["wavefronts_st", "wavefronts, stores"], ["conflicts", "bank conflicts"],
                      ["global_sectors_ld", "sectors, loads"], ["global_sectors_st", "sectors, stores"],
                      ["mma_instructions", "mma"], ["wgmma_instructions", "wgmma"]];

const shown = (count) => (count === null || count === undefined ? "" : count.toLocaleString("en"));
const megabytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MB`;

/// A file that the server may or may not have decompressed already.
async function unpacked(name) {
  const bytes = new Uint8Array(await (await fetch(name)).arrayBuffer());
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const [wasm, data] = await Promise.all([
  unpacked("emulator.wasm.gz"),
  unpacked(`${document.body.dataset.rung}.json.gz`).then((bytes) => JSON.parse(new TextDecoder().decode(bytes))),
]);
let worker = null;

/// What a new worker answers; another request ends the one before.
function asked(request) {
  worker?.terminate();
  const own = (worker = new Worker("worker.js"));
  return new Promise((resolve, reject) => {
    own.onmessage = ({ data: answer }) => {
      own.terminate();
      if (answer.error) reject(new Error(answer.error));
      else resolve(answer);
    };
    own.onerror = (event) => reject(new Error(event.message));
    own.postMessage({ ...request, wasm, arch: data.arch });
  });
}

/// The answer for this problem or, when there is no memory for it, for the largest one with the same mask that
/// fits; [answer, problem], or [null, null].
async function fitting(request, problem) {
  const smaller = data.problems.filter((one) => one.is_causal === problem.is_causal && one.size < problem.size);
  for (const one of [problem, ...smaller.sort((a, b) => b.size - a.size)]) {
    const answer = await asked({ ...request, problem: one });
    if (!answer.no_memory) return [answer, one];
  }
  return [null, null];
}

function memoryNote(problem, fits) {
  if (problem === fits) return "";
  const wanted = `${problem.label} does not fit into the memory that this browser gives.`;
  return fits ? `${wanted} This is ${fits.label}, which fits.` : `${wanted} No smaller size fits either.`;
}

// --- the choice

const chosen = () =>
  data.problems.find((one) => one.size === Number($("size").value) && one.is_causal === ($("mask").value === "causal"));
const program = () => data.programs[$("program").selectedIndex];

function fillChoices() {
  const sizes = [...new Set(data.problems.map((one) => one.size))];
  $("size").append(...sizes.map((size) => element("option", { value: size, textContent: `N = M = ${size}` })));
  $("mask").append(...["none", "causal"].map((mask) => element("option", { value: mask, textContent: mask })));
  $("program").append(...data.programs.map((one) => element("option", { textContent: one.name })));
  $("program").parentElement.hidden = data.programs.length < 2;
  $("program").onchange = () => { $("check").checked ||= $("program").selectedIndex > 0; };
}

// --- the source, and the exercise whose answer is one of its lines

/// No right answer of v1 differs from the reference by more; wrong ones differ by a tenth and more.
const MOST_ERROR = 1e-4;
let isSolved = !data.exercise;

/// The rung's lines, with `instead` where the exercise's answer belongs until that is known.
function linesWith(instead) {
  return data.source.lines.map((text, index) =>
    isSolved || index + 1 !== data.exercise.line ? text : text.replace(/\S.*/, instead));
}

const sourceLines = () => program().lines ?? linesWith("... // the exercise");

function paragraphs(text) {
  return text.split("\n\n").map((one) => element("p", { textContent: one }));
}

function showExercise() {
  const { title, task, answers, hints } = data.exercise;
  $("exercise").hidden = false;
  $("title").textContent = title;
  $("task").replaceChildren(...paragraphs(task));
  $("answers").append(...answers.map((one, number) => choiceOfAnswer(number, one.text)));
  let given = 0;
  $("hint").onclick = () => {
    $("hints").append(element("li", { textContent: hints[given++] }));
    $("hint").disabled = given === hints.length;
  };
  $("answer").onclick = () => checkAnswer().catch((error) => {
    verdict("");
    failed(error);
  });
}

function choiceOfAnswer(value, text) {
  const input = element("input", { type: "radio", name: "answer", value });
  return element("label", {}, input, element("code", { textContent: text }));
}

/// What is wrong with an answer to a problem; "" if nothing is.
async function complaint(chosenAnswer, problem) {
  const request = { what: "run", ptx: chosenAnswer.ptx, kernels: chosenAnswer.kernels, check: true };
  const answer = await asked({ ...request, problem });
  if (answer.no_memory) throw new Error(memoryNote(problem, null));
  const { log, outputs } = answer;
  if (log.fault) return log.fault.text;
  if (log.findings.length) return `${log.findings[0].kind}: ${log.findings[0].message}${place(log.findings[0])}`;
  const error = largestError({ outputs }, problem);
  if (Number.isNaN(error)) return "an element of o is NaN";
  return error <= MOST_ERROR ? "" : `o differs from the reference by ${error.toPrecision(2)}`;
}

async function checkAnswer() {
  const { answers, afterword } = data.exercise;
  const input = document.querySelector("#answers input:checked");
  if (!input) return verdict("Choose an answer.");
  verdict("Checking ...");
  const given = input.value === EDITED ? await compiledSource(data.rung, kernelNames()) : answers[input.value];
  for (const problem of data.problems.filter((one) => one.size === 100)) {
    const said = await complaint(given, problem);
    if (said) {
      verdict(`Not right: ${said} (${problem.label}).`);
      window.live = { is_right: false };
      return;
    }
  }
  isSolved = true;
  showLines(lastLog);
  verdict(`Right. ${afterword}`);
  window.live = { is_right: true };
}

function verdict(text) {
  $("verdict").textContent = text;
}

// --- a run

let lastLog = { kernels: [], findings: [] };

function largestError(answer, problem) {
  const bytes = answer.outputs[problem.reference.output];
  const reference = new Float32Array(Uint8Array.from(atob(problem.reference.data), (c) => c.charCodeAt(0)).buffer);
  const own = problem.reference.dtype === "f32" ? new Float32Array(bytes.buffer) : halves(bytes);
  return reference.reduce((most, wanted, i) => {
    const error = Math.abs(own[i] - wanted);
    return Number.isNaN(error) || error > most ? error : most;
  }, 0);
}

function halves(bytes) {
  return Array.from(new Uint16Array(bytes.buffer), (bits) => {
    const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  });
}

async function run() {
  const problem = chosen(), own = program();
  say("Running ...");
  const request = { what: "run", ptx: own.ptx, kernels: own.kernels, check: $("check").checked };
  const [answer, fits] = await fitting(request, problem);
  if (!answer) return say(memoryNote(problem, null));
  const { log } = answer;
  lastLog = log;
  const first = log.kernels[0];
  const isNative = own === data.programs[0] && first;
  const same = isNative && JSON.stringify(log.kernels.map((one) => one.totals)) === JSON.stringify(fits.totals);
  say([
    memoryNote(problem, fits),
    `${(answer.elapsed_ms / 1000).toFixed(2)} s, ${megabytes(answer.memory_bytes)} of memory.`,
    log.fault ? "" : `Largest error of o: ${largestError(answer, fits).toExponential(1)}.`,
    isNative ? (same ? "The counts are those of the native emulator." : "THE COUNTS DIFFER FROM THE NATIVE EMULATOR'S.") : "",
  ].filter(Boolean).join(" "));
  showFindings(log);
  showTotals(log);
  showLines(log);
  window.live = { log, problem: fits.label, memory_bytes: answer.memory_bytes, elapsed_ms: answer.elapsed_ms };
}

function say(text) {
  $("said").textContent = text;
}

/// The lines of a finding: of the access, and of the one that it races with.
function place({ who, other }) {
  const lines = [who.own_line, other?.own_line].filter(Boolean);
  return lines.length ? ` (line ${[...new Set(lines)].join(", and line ")})` : "";
}

function showFindings(log) {
  const items = log.findings.map((one) =>
    element("li", { textContent: `${one.kind}: ${one.message}${place(one)}` }));
  if (log.fault) items.unshift(element("li", { textContent: log.fault.text }));
  const nothing = $("check").checked ? "The sanitizer has found nothing." : "";
  $("findings").replaceChildren(...(items.length ? items : nothing ? [element("li", { textContent: nothing })] : []));
}

function showTotals(log) {
  const rows = log.kernels.flatMap((one) => Object.entries(one.totals).filter(([, count]) => count !== 0 && count !== null));
  $("totals").replaceChildren(...rows.map(([name, count]) =>
    element("tr", {}, element("th", { textContent: name }), element("td", { textContent: shown(count) }))));
}

/// The kernel's lines with the counts of all instructions that belong to them, those of helpers included.
function showLines(log) {
  const counts = new Map();
  for (const kernel of log.kernels)
    for (const line of kernel.lines)
      if (line.kernel_file === data.source.name || line.kernel_file.endsWith(`/${data.source.name}`)) {
        const sum = counts.get(line.own_line) ?? {};
        for (const [name] of LINE_COLUMNS) sum[name] = (sum[name] ?? 0) + (line[name] ?? 0);
        counts.set(line.own_line, sum);
      }
  const columns = LINE_COLUMNS.filter(([name]) => [...counts.values()].some((sum) => sum[name]));
  const found = new Set(log.findings.map((one) => one.who.own_line));
  const removed = program().without;
  const rows = sourceLines().map((text, index) => {
    const number = index + 1, sum = counts.get(number) ?? {};
    const made = element("tr", { className: removed === number ? "removed" : found.has(number) ? "found" : "" },
      ...columns.map(([name]) => element("td", { className: `count ${name}`, textContent: sum[name] ? shown(sum[name]) : "" })),
      element("td", { className: "number", textContent: number }),
      element("td", { className: "code", textContent: text }));
    made.onclick = () => { $("line").value = number; };
    return made;
  });
  const head = columns.map(([name, heading]) => element("th", { className: name, textContent: heading }));
  $("lines").replaceChildren(element("tr", {}, ...head, element("th", { textContent: "line" })), ...rows);
}

// --- the editor

/// The value of the choice of an answer that the editor holds.
const EDITED = "edited";

const kernelNames = () => Object.keys(data.programs[0].kernels);

function offerEditor() {
  showEditor(() => linesWith(data.exercise?.skeleton).join("\n"), () => runEdited().catch(failed));
  if (!data.exercise) return;
  $("answers").append(choiceOfAnswer(EDITED, "the kernel in the editor below"));
  $("gap").textContent = `Until the exercise is solved, line ${data.exercise.line} is the one that is to be changed.`;
}

async function runEdited() {
  $("ran").textContent = "";
  const compiled = await compiledSource(data.rung, kernelNames());
  const isFirst = !data.programs.at(-1).lines;
  if (isFirst) {
    data.programs.push({ name: "the editor's" });
    $("program").append(element("option", { textContent: data.programs.at(-1).name }));
    $("program").parentElement.hidden = false;
    $("check").checked = true;
  }
  Object.assign(data.programs.at(-1), compiled);
  $("program").selectedIndex = data.programs.length - 1;
  await run();
  const conflicts = lastLog.kernels.reduce((sum, one) => sum + one.totals.conflicts, 0);
  $("ran").textContent = `${$("said").textContent} ${shown(conflicts)} bank conflicts; findings: ${lastLog.findings.length}.` +
    " All counts are below, the findings at the top.";
}

// --- steps

async function follow() {
  const problem = chosen(), { grid, block } = problem.launches[0], own = program().debug;
  if (!own) throw new Error("Steps need a build with -G; the editor's kernel has none. ladder debug makes one.");
  const warps = [];
  const [gx, gy, gz] = grid, [bx, by, bz] = block;
  for (let b = 0; b < Math.min(gx * gy * gz, 4); ++b)
    for (let w = 0; w < Math.ceil((bx * by * bz) / 32); ++w) warps.push([b, w]);
  say("Stepping ...");
  const wanted = Number($("line").value), line = wanted && lineWithCode(own, problem, wanted);
  const moved = line === wanted ? "" : `Line ${wanted} has no code; this begins at line ${line}.`;
  const moments = async (number) => {
    const [answer, fits] = await fitting({
      what: "steps", ptx: own.ptx, kernels: own.kernels, tables: own.tables, check: $("check").checked,
      block: warps[number][0], warp: warps[number][1], line, most: STEPS }, problem);
    if (!answer) throw new Error(memoryNote(problem, null));
    say([moved, memoryNote(problem, fits)].join(" ").trim());
    if (!answer.moments.length) throw new Error(`${moved} This warp does not reach line ${line}.`.trim());
    return answer.moments;
  };
  const values = { source: sourceLines(), moments: await moments(0), index: 0, warp: 0,
                   warps: warps.map(([b, w]) => `block ${b}, warp ${w}`) };
  const listeners = {};
  const changed = (name) => (listeners[`change:${name}`] ?? []).forEach((listener) => listener());
  const model = {
    get: (name) => values[name],
    set: (name, value) => {
      if (values[name] === value) return;
      values[name] = value;
      if (name === "index") changed(name);
      if (name === "warp")
        moments(value).then((all) => {
          Object.assign(values, { moments: all, index: 0 });
          window.live = { moments: all };
          changed("moments");
        }, failed);
    },
    save_changes: () => {},
    on: (event, listener) => (listeners[event] ??= []).push(listener),
  };
  $("steps").replaceChildren();
  stepper.render({ model, el: $("steps") });
  window.live = { moments: values.moments };
}

/// The first line with code from this one on.
function lineWithCode(debug, problem, wanted) {
  const { starts } = debug.tables[debug.kernels[problem.launches[0].kernel]];
  const later = Object.keys(starts).map(Number).filter((line) => line >= wanted);
  if (!later.length) throw new Error(`The kernel has no code at line ${wanted} or behind it.`);
  return Math.min(...later);
}

function failed(error) {
  say(error.message);
  window.live = { error: error.message };
}

fillChoices();
if (data.exercise) showExercise();
$("run").onclick = () => run().catch(failed);
$("step").onclick = () => follow().catch(failed);
if (await compilerIsHere()) offerEditor();
say(`${data.problems.length} problems, the emulator and the kernels are here; nothing more is loaded.`);
window.live = {};
