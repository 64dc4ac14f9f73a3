// A rung, an example or an exercise in the browser: chooses a problem, has the worker run it, shows the counts, the
// findings, and a warp's steps. The data are those of tools/pages/live_pages.py.
import { compiledForSteps, compiledSource, compilerIsHere, showEditor } from "./editor.js";
import { element } from "./elements.js";
import { decoded, outputComplaint, largestError, limitComplaint } from "./judge.js";
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
  unpacked(`${document.body.dataset.name}.json.gz`).then((bytes) => JSON.parse(new TextDecoder().decode(bytes))),
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
    own.postMessage({ ...request, wasm, arch: data.arch, source: data.source.name });
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

const hasSizes = data.problems[0].size !== undefined;

const chosen = () => (hasSizes
  ? data.problems.find((one) => one.size === Number($("size").value) && one.is_causal === ($("mask").value === "causal"))
  : data.problems[$("problem").selectedIndex]);

/// The kernel that runs: on an exercise's page the chosen answer.
const program = () => data.programs[data.exercise ? chosenAnswer() : $("program").selectedIndex];

function fillChoices() {
  const options = (name, texts) => $(name).append(...texts.map((text) => element("option", { value: text, textContent: text })));
  if (hasSizes) {
    const sizes = [...new Set(data.problems.map((one) => one.size))];
    $("size").append(...sizes.map((size) => element("option", { value: size, textContent: `N = M = ${size}` })));
    options("mask", ["none", "causal"]);
  } else options("problem", data.problems.map((one) => one.label));
  for (const name of ["size", "mask"]) $(name).parentElement.hidden = !hasSizes;
  $("problem").parentElement.hidden = hasSizes;
  options("program", data.programs.map((one) => one.name));
  $("program").parentElement.hidden = data.exercise || data.programs.length < 2;
  $("program").onchange = () => { $("check").checked ||= $("program").selectedIndex > 0; };
}

/// The PTX of a program, and its names for the kernels.
function built({ compiled, module, ptx, error }) {
  if (error) throw new Error(error);
  return compiled ?? { ptx: data.modules[module].ptx.ptx, kernels: ptx };
}

// --- the source, and the exercise

const sourceLines = () => program().lines ?? data.source.lines;

function paragraphs(text) {
  return text.split("\n\n").map((one) => element("p", { textContent: one }));
}

function showExercise() {
  const { task, hints } = data.exercise;
  $("exercise").hidden = false;
  $("task").replaceChildren(...paragraphs(task));
  $("answers").append(...data.programs.map((one, number) => choiceOfAnswer(number, element("pre", { textContent: one.text }))));
  $("answers").onchange = () => showLines({ kernels: [], findings: [] });
  document.querySelector("#answers input").checked = true;
  $("check").checked = true;
  let given = 0;
  $("hint").onclick = () => {
    $("hints").append(element("li", { textContent: hints[given++] }));
    $("hint").disabled = given === hints.length;
  };
  $("answer").onclick = () => checkAnswer().catch((error) => {
    verdict("");
    failed(error);
  });
  showLines({ kernels: [], findings: [] });
}

const chosenAnswer = () => Number(document.querySelector("#answers input:checked").value);

function choiceOfAnswer(value, shownAs) {
  return element("label", {}, element("input", { type: "radio", name: "answer", value }), shownAs);
}

/// What is wrong with an answer to a problem, as `ladder exercise check` finds it: lines of texts; none if nothing is.
async function complaint(own, problem) {
  if (own.error) return own.error.split("\n").map((line) => [line]);
  const answer = await asked({ what: "run", ...built(own), check: true, problem });
  if (answer.no_memory) throw new Error(memoryNote(problem, null));
  const { log, outputs } = answer;
  if (log.fault) return [faultTexts(log.fault)];
  const printed = own.said?.[data.problems.indexOf(problem)];
  const output = own.said ? printed && [printed] : outputComplaint(outputs, problem.references);
  const found = log.findings.find((one) => one.who);
  const lines = [output, found && findingTexts(found)].filter(Boolean);
  return lines.length ? lines : limitComplaint(log, problem);
}

async function checkAnswer() {
  verdict("Checking ...");
  if (chosenAnswer() === edited) await compileEdited();
  const own = program();
  for (const problem of data.problems) {
    const lines = await complaint(own, problem);
    if (lines.length) {
      verdict("Not right:", [[problem.label], ...lines]);
      window.live = { is_right: false, said: lines.map((texts) => texts.join("")).join("\n") };
      return;
    }
  }
  verdict("Right.", data.exercise.afterword.split("\n\n").map((one) => [one]));
  window.live = { is_right: true };
}

function verdict(word, lines = []) {
  $("verdict").replaceChildren(...[[word], ...lines].map((texts) => element("p", {}, ...texts)));
}

// --- a run

let lastLog = { kernels: [], findings: [] };

async function run() {
  const problem = chosen(), own = program();
  say("Running ...");
  const request = { what: "run", ...built(own), check: $("check").checked };
  const [answer, fits] = await fitting(request, problem);
  if (!answer) return say(memoryNote(problem, null));
  const { log } = answer;
  lastLog = log;
  const first = log.kernels[0];
  const isNative = own === data.programs[0] && first && fits.totals;
  const same = isNative && JSON.stringify(log.kernels.map((one) => one.totals)) === JSON.stringify(fits.totals);
  say([
    memoryNote(problem, fits),
    `${(answer.elapsed_ms / 1000).toFixed(2)} s, ${megabytes(answer.memory_bytes)} of memory.`,
    log.fault ? "" : errorText(answer, fits),
    isNative ? (same ? "The counts are those of the native emulator." : "THE COUNTS DIFFER FROM THE NATIVE EMULATOR'S.") : "",
  ].filter(Boolean).join(" "));
  showFindings(log);
  showTotals(log);
  showLines(log);
  window.live = { log, problem: fits.label, memory_bytes: answer.memory_bytes, elapsed_ms: answer.elapsed_ms };
}

function errorText({ outputs }, { references }) {
  if (data.exercise) return "";
  const [first] = references, error = largestError(outputs, first), most = Math.max(...decoded(first.limits, "f64"));
  return `Largest error of ${first.output}: ${error.toExponential(1)}.` + (error <= most ? "" : ` At most ${most.toExponential(1)} is right.`);
}

function say(text) {
  $("said").textContent = text;
}

/// The lines of a finding: of the access, and of the one that it races with.
function place({ who, other }) {
  const lines = [who.own_line, other?.own_line].filter(Boolean);
  return lines.length ? ` (line ${[...new Set(lines)].join(", and line ")})` : "";
}

/// The texts of a finding and of a fault; each is translated by itself.
const findingTexts = (one) => [one.kind, ": ", one.message, place(one)];

function faultTexts({ text, message }) {
  const at = text.indexOf(message);
  return at < 0 ? [text] : [text.slice(0, at), message, text.slice(at + message.length)].filter(Boolean);
}

function showFindings(log) {
  const items = log.findings.map((one) => element("li", {}, ...findingTexts(one)));
  if (log.fault) items.unshift(element("li", {}, ...faultTexts(log.fault)));
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
  const removed = program().without ?? 0;
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

/// The number of the program that the editor holds.
const edited = data.programs.length;

/// The recorded names of the kernels, each with its identifier in a program.
const kernelNames = () => [...new Set(data.problems.flatMap((one) => one.launches.map((launch) => launch.kernel)))]
  .map((name) => [name, data.identifiers?.[name]]);

function offerEditor() {
  showEditor(() => data.source.lines.join("\n"), () => runEdited().catch(failed));
  if (data.exercise) $("answers").append(choiceOfAnswer(edited, element("span", { textContent: "the kernel in the editor below" })));
}

/// Compiles the editor's source, which becomes a program of the page.
async function compileEdited() {
  const compiled = await compiledSource(data.name, kernelNames());
  if (data.programs.length === edited) {
    data.programs.push({ name: "the editor's" });
    $("program").append(element("option", { textContent: data.programs[edited].name }));
    $("program").parentElement.hidden = Boolean(data.exercise);
    $("check").checked = true;
  }
  Object.assign(data.programs[edited], { compiled, lines: compiled.lines, stepping: null });
}

async function runEdited() {
  $("ran").textContent = "";
  await compileEdited();
  if (data.exercise) document.querySelector(`#answers input[value="${edited}"]`).checked = true;
  else $("program").selectedIndex = edited;
  await run();
  const conflicts = lastLog.kernels.reduce((sum, one) => sum + one.totals.conflicts, 0);
  $("ran").textContent = `${$("said").textContent} ${shown(conflicts)} bank conflicts; findings: ${lastLog.findings.length}.` +
    " All counts are below, the findings at the top.";
}

// --- steps

async function follow() {
  say("Stepping ...");
  const problem = chosen(), { grid, block } = problem.launches[0], own = await builtForSteps(program());
  const warps = [];
  const [gx, gy, gz] = grid, [bx, by, bz] = block;
  for (let b = 0; b < Math.min(gx * gy * gz, 4); ++b)
    for (let w = 0; w < Math.ceil((bx * by * bz) / 32); ++w) warps.push([b, w]);
  const wanted = Number($("line").value), line = wanted && lineWithCode(own, problem, wanted);
  const moved = line === wanted ? "" : `Line ${wanted} has no code; this begins at line ${line}.`;
  const moments = async (number) => {
    const [answer, fits] = await fitting({
      what: "steps", ...own, check: $("check").checked,
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

/// A program as nvcc -G compiles it, with its tables; only a server makes that of the editor's kernel.
async function builtForSteps(own) {
  if (own.error) throw new Error(own.error);
  if (own.debug) return { ...data.modules[own.module].debug, kernels: own.debug };
  if (own.stepping) return own.stepping;
  if (!hasCompiler) throw new Error("Only the exercise as it is has steps here; ladder serve compiles the others for them.");
  return (own.stepping = await compiledForSteps(data.name, own.lines.join("\n"), kernelNames()));
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
const hasCompiler = await compilerIsHere();
if (hasCompiler) offerEditor();
say(`${data.problems.length} problems, the emulator and the kernels are here; nothing more is loaded.`);
window.live = {};
