// Runs the emulator for the page: one problem per worker, so that ending the worker ends the run and frees its
// memory. The functions live_* are those of emulator/wasm/page.cpp.
importScripts("emulator.js");

const WHY = ["launch", "breakpoint", "step", "watch", "finding", "fault", "reached", "interrupted", "end"];
const STEP = { none: 0, into: 2, over: 3 };
const USES = ["input", "output", "allocation", "contents"];
const DONE = 0, ENDED_BY_PAGE = 1, NO_MEMORY = 2;

class NoMemory extends Error {}

function decoded(text) {
  return Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
}

/// Calls of the emulator with strings.
function calls(module) {
  const call = (name, result, types, values) => module.ccall(`live_${name}`, result, types, values);
  const require = (outcome) => {
    if (outcome === NO_MEMORY) throw new NoMemory();
    if (outcome !== DONE && outcome !== ENDED_BY_PAGE) throw new Error(call("message", "string", [], []));
  };
  return { call, require };
}

/// Opens a session with a problem's buffers; returns their addresses.
function open(module, request) {
  const { call, require } = calls(module);
  require(call("open", "number", ["string", "number"], [request.arch, request.check ? 1 : 0]));
  return request.problem.buffers.map((buffer) => {
    const begin = call("buffer", "number", ["string", "number", "number", "number"],
      [buffer.name, buffer.bytes, buffer.distance, USES.indexOf(buffer.use)]);
    if (!begin) throw new NoMemory();
    if (buffer.data) module.HEAPU8.set(decoded(buffer.data), begin);
    return begin;
  });
}

/// The text as C has it; strings of half a megabyte do not fit on the stack, where ccall would put them.
function load(module, ptx) {
  const { call, require } = calls(module);
  const bytes = new TextEncoder().encode(ptx);
  const memory = module._malloc(bytes.length + 1);
  if (!memory) throw new NoMemory();
  module.HEAPU8.set(bytes, memory);
  module.HEAPU8[memory + bytes.length] = 0;
  require(call("load", "number", ["number"], [memory]));
  module._free(memory);
}

/// Repeats a recorded launch; returns false if a fault has ended it.
function launch(module, recorded, kernel, addresses) {
  const { call } = calls(module);
  const shape = [...recorded.grid, ...recorded.block, ...recorded.cluster, recorded.dynamic_smem_bytes];
  const bytes = decoded(recorded.arguments);
  const moved = recorded.pointers.flatMap(([at, buffer, distance]) => [at, addresses[buffer] + distance]);
  const words = [...shape, ...moved];
  const memory = module._malloc(4 * words.length + bytes.length);
  if (!memory) throw new NoMemory();
  module.HEAPU32.set(words, memory / 4);
  module.HEAPU8.set(bytes, memory + 4 * words.length);
  const outcome = call("launch", "number", ["string", "number", "number", "number", "number", "number"],
    [kernel, memory, memory + 4 * words.length, bytes.length, memory + 4 * shape.length, moved.length / 2]);
  module._free(memory);
  if (outcome === NO_MEMORY) throw new NoMemory();
  return outcome === DONE;
}

/// Runs all launches: the counts and findings, and the outputs.
function run(module, request) {
  const { call, require } = calls(module);
  const addresses = open(module, request);
  load(module, request.ptx);
  const begin = performance.now();
  for (const recorded of request.problem.launches)
    if (!launch(module, recorded, request.kernels[recorded.kernel], addresses)) break;
  const elapsed_ms = performance.now() - begin;
  require(call("finish", "number", [], []));
  const outputs = {};
  request.problem.buffers.forEach((buffer, number) => {
    if (buffer.use === "output" || buffer.use === "contents")
      outputs[number] = module.HEAPU8.slice(addresses[number], addresses[number] + buffer.bytes);
  });
  return { log: JSON.parse(call("json", "string", [], [])), outputs, elapsed_ms };
}

// --- steps

/// As C prints %.6g.
function sixDigits(number) {
  if (Number.isNaN(number)) return "nan";
  if (!Number.isFinite(number)) return number > 0 ? "inf" : "-inf";
  if (number === 0) return Object.is(number, -0) ? "-0" : "0";
  const [digits, exponent] = number.toExponential(5).split("e"), power = Number(exponent);
  const shortened = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (power < -4 || power >= 6)
    return `${shortened(digits)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  return shortened(number.toFixed(5 - power));
}

function pointerText(address) {
  const space = { 1: "shared", 2: "local", 3: "param" }[Number(address >> 56n)];
  return space ? `${space}+0x${(address & ((1n << 56n) - 1n)).toString(16)}` : `0x${address.toString(16)}`;
}

/// The text of a scalar of a kind such as f4; its bytes are the low ones of the view.
function textOf(kind, view) {
  const bytes = Number(kind.slice(1));
  const whole = (signed) => bytes === 8 ? (signed ? view.getBigInt64(0, true) : view.getBigUint64(0, true))
    : view[`get${signed ? "Int" : "Uint"}${8 * bytes}`](0, true);
  switch (kind[0]) {
    case "b": return whole(false) ? "true" : "false";
    case "f": return sixDigits(bytes === 8 ? view.getFloat64(0, true) : view.getFloat32(0, true));
    case "p": return pointerText(view.getBigUint64(0, true));
    default: return String(whole(kind[0] === "i"));
  }
}

/// "lanes 0-3, 8", or "lanes 0-30 by 2".
function lanesText(mask) {
  const lanes = [...Array(32).keys()].filter((lane) => (mask >>> lane) & 1);
  if (!lanes.length) return "no lane";
  const steps = new Set(lanes.slice(1).map((lane, i) => lane - lanes[i]));
  if (lanes.length > 2 && steps.size === 1 && !steps.has(1))
    return `lanes ${lanes[0]}-${lanes.at(-1)} by ${[...steps][0]}`;
  const parts = [];
  for (const lane of lanes)
    if (parts.length && parts.at(-1)[1] === lane - 1) parts.at(-1)[1] = lane;
    else parts.push([lane, lane]);
  return `lane${lanes.length > 1 ? "s" : ""} ${parts.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(", ")}`;
}

/// Records the moments of one warp, as ladder/debugger/recording.py has them.
class Follower {
  constructor(module, request) {
    Object.assign(this, calls(module), { module, request, moments: [], tables: null });
  }

  begin() {
    this.call("follow", null, [], []);
  }

  step(name) {
    const { block, warp } = this.request;
    this.call("step", null, ["number", "number", "number", "number"], [STEP[name], block, warp, 0]);
  }

  breakAt(instructions) {
    const memory = this.module._malloc(4 * instructions.length + 4);
    this.module.HEAPU32.set(instructions, memory / 4);
    this.call("breakpoints", null, ["number", "number"], [memory, instructions.length]);
    this.module._free(memory);
  }

  numbers(pointer, count) {
    return Array.from(new BigUint64Array(this.module.HEAPU8.buffer, pointer, count));
  }

  /// Called by the emulator wherever it stops; 0 ends the launch.
  stopped(number) {
    const why = WHY[number], { line, most, check, block, warp } = this.request;
    if (why === "launch") {
      if (check) this.call("stop_at_findings", null, [], []);
      if (line) this.breakAt(this.tables.starts[line] || []);
      this.step(line ? "none" : "into");
      return 1;
    }
    const at = this.call("here", "number", [], []);
    const here = at ? this.numbers(at, 7).map(Number) : null;
    if (why === "breakpoint") {
      if (here[0] !== block || here[2] !== warp) return 1;
      this.breakAt([]);
    }
    this.moments.push(this.moment(why, here));
    if (why === "end" || this.moments.length >= most) return 0;
    this.step("over");
    return 1;
  }

  reason(why) {
    if (why === "fault") return `fault: ${this.call("fault", "string", [], [])}`;
    if (why === "finding") {
      const found = JSON.parse(this.call("findings", "string", [], [])).at(-1);
      return `the sanitizer has found (${found.kind}): ${found.message}`;
    }
    return why === "end" ? "the launch has ended" : why === "breakpoint" ? "breakpoint" : "";
  }

  moment(why, here) {
    const moment = { number: 0, file: "", line: 0, function: "", together: "", in_source: false, same: [],
                     differing: [], lanes: [...Array(32)].map(() => []), reason: this.reason(why) };
    if (!here) return moment;
    const [block, rank, warp, path, , pc, number] = here;
    const [file, line, name] = this.tables.places[pc];
    const columns = this.columns(rank, warp, pc);
    Object.assign(moment, { number, file: this.tables.files[file], line, function: name, block, warp,
                            in_source: this.tables.files[file] === this.request.source, together: lanesText(path) });
    for (const [variable, texts] of columns) {
      const shown = new Set(texts.filter((text) => text !== ""));
      if (shown.size === 1) moment.same.push([variable, [...shown][0]]);
      else if (shown.size) {
        moment.differing.push(variable);
        texts.forEach((text, lane) => moment.lanes[lane].push(text));
      }
    }
    return moment;
  }

  /// [name, text by lane] of each variable in scope at the instruction; lanes elsewhere have their own places.
  columns(rank, warp, pc) {
    const at = this.call("paths", "number", ["number", "number"], [rank, warp]);
    const count = Number(this.numbers(at, 1)[0]), flat = this.numbers(at + 8, 2 * count).map(Number);
    const texts = new Map(this.scope(pc).map(([name]) => [name, Array(32).fill("")]));
    for (let i = 0; i < count; ++i) {
      const lanes = [...Array(32).keys()].filter((lane) => (flat[2 * i] >>> lane) & 1);
      for (const [name, ...place] of this.scope(flat[2 * i + 1]))
        if (texts.has(name)) this.read(place, rank, warp, lanes, texts.get(name));
    }
    return texts;
  }

  scope(pc) {
    return this.tables.scopes[this.tables.places[pc][3]];
  }

  read([kind, space, symbol, offset], rank, warp, lanes, texts) {
    const view = new DataView(new ArrayBuffer(8)), bytes = Number(kind.slice(1));
    if (space === "constant") {
      for (const lane of lanes) texts[lane] = String(offset);
    } else if (space === "register") {
      const at = this.call("register", "number", ["number", "number", "number", "string"],
        [rank, warp, lanes[0], symbol]);
      if (!at) return;
      const values = this.numbers(at, 32);
      for (const lane of lanes) {
        view.setBigUint64(0, values[lane], true);
        texts[lane] = textOf(kind, view);
      }
    } else {
      for (const lane of lanes) {
        const at = this.call("memory", "number", ["number", "number", "number", "number", "string", "number", "number"],
          [space === "parameter" ? 1 : 0, rank, warp, lane, symbol, offset, bytes]);
        if (!at) continue;
        for (let i = 0; i < bytes; ++i) view.setUint8(i, this.module.HEAPU8[at + i]);
        texts[lane] = textOf(kind, view);
      }
    }
  }
}

/// The moments of a warp in the first launch.
function follow(module, request, follower) {
  const addresses = open(module, request);
  load(module, request.ptx);
  follower.begin();
  const recorded = request.problem.launches[0], kernel = request.kernels[recorded.kernel];
  follower.tables = request.tables[kernel];
  launch(module, recorded, kernel, addresses);
  return { moments: follower.moments };
}

onmessage = async ({ data: request }) => {
  try {
    const module = await Emulator({ wasmBinary: request.wasm });
    const follower = new Follower(module, request);
    module.stopped = (why) => follower.stopped(why);
    const answer = request.what === "run" ? run(module, request) : follow(module, request, follower);
    postMessage({ ...answer, memory_bytes: module.HEAPU8.length });
  } catch (error) {
    // The emulator's own memory cannot be made, or cannot grow where no call reports it.
    const isMemory = error instanceof NoMemory || /could not allocate|out of memory|enlarge memory/i.test(String(error));
    postMessage(isMemory ? { no_memory: true } : { error: String(error) });
  }
};
