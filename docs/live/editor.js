// The editor of a page that `ladder serve` serves: its compiler turns the source into PTX, and the page runs it
// with the launches that it has. Other servers have no compiler; then there is no editor.

const $ = (id) => document.getElementById(id);
/// nvcc puts a hash of the source's text into the name of what is in an anonymous namespace.
const HASH = /_GLOBAL__N__[0-9a-f]{8}_(\d+_\w+?)_[0-9a-f]{8}/g;
const withoutHash = (name) => name.replace(HASH, "$1");

/// Whether the page's server compiles.
export async function compilerIsHere() {
  const answer = await fetch("compiler.json", { cache: "no-store" });
  return answer.ok && (await answer.json()).is_here;
}

/// Shows the editor with the source that the function returns; the button calls `run`.
export function showEditor(source, run) {
  $("editor").hidden = false;
  const field = $("source");
  field.value = source();
  const showLine = () => { $("at").textContent = `line ${field.value.slice(0, field.selectionStart).split("\n").length}`; };
  document.addEventListener("selectionchange", () => { if (document.activeElement === field) showLine(); });
  $("compile").onclick = run;
  $("reset").onclick = () => { field.value = source(); say(""); };
}

/// The editor's source, compiled: the text, its PTX, and the names that it has for these kernels. `kernels` has the
/// recorded names, each with the identifier of a program's kernel.
export async function compiledSource(name, kernels) {
  const source = $("source").value;
  return { ...(await compiled({ name, source }, kernels)), lines: source.split("\n") };
}

/// A source as nvcc -G compiles it, with the tables for steps.
export const compiledForSteps = (name, source, kernels) => compiled({ name, source, steps: true }, kernels);

async function compiled(body, kernels) {
  say("Compiling ...");
  $("compile").disabled = true;
  try {
    const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const { ptx, tables, error, line } = await (await fetch("compile", request)).json();
    if (error) {
      say(error);
      if (line) select(line);
      throw new Error(line ? `line ${line} does not compile` : "it does not compile");
    }
    const names = namesOf(ptx, kernels);
    say("");
    return { ptx, tables, kernels: names };
  } finally {
    $("compile").disabled = false;
  }
}

function namesOf(ptx, kernels) {
  const own = new Map([...ptx.matchAll(/\.entry\s+(\w+)/g)].map(([, name]) => [withoutHash(name), name]));
  // A program's kernel is recorded in another namespace than the editor's.
  const ofProgram = (identifier) => [...own.values()].find((name) => name.startsWith(`_Z${identifier.length}${identifier}`));
  const names = kernels.map(([name, identifier]) => [name, identifier ? ofProgram(identifier) : own.get(withoutHash(name))]);
  if (names.some(([, found]) => !found)) {
    say("It compiles, but has no kernel of the kind that the page launches. The page keeps the launches of the rung: " +
        "the name of the kernel, its template and other parameters, and so the sizes of tiles stay as they are.");
    throw new Error("the page cannot launch this kernel");
  }
  return Object.fromEntries(names);
}

function say(text) {
  $("messages").textContent = text;
}

function select(line) {
  const field = $("source"), lines = field.value.split("\n");
  const begin = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  field.focus();
  field.setSelectionRange(begin, begin + (lines[line - 1] ?? "").length);
  field.scrollTop = (line - 4) * parseFloat(getComputedStyle(field).lineHeight);
}
