// Whether an answer's outputs and counts are right, by the references and limits of tools/pages/live_recording.py.

const ARRAYS = { f64: Float64Array, f32: Float32Array, i32: Int32Array, u8: Uint8Array };

export function decoded(text, format) {
  return new ARRAYS[format](Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
}

function halves(bytes) {
  return Array.from(new Uint16Array(bytes.buffer), (bits) => {
    const exponent = (bits >> 10) & 31, fraction = bits & 1023, sign = bits >> 15 ? -1 : 1;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  });
}

const values = (bytes, dtype) => (dtype === "f16" ? halves(bytes) : new ARRAYS[dtype](bytes.buffer));

/// The errors of an output, element by element; none where both are the same infinity.
function errors(outputs, { buffer, dtype, format, data }) {
  const own = values(outputs[buffer], dtype);
  return Array.from(decoded(data, format), (wanted, i) => (own[i] === wanted ? 0 : own[i] - wanted));
}

/// NaN if the output has one.
export function largestError(outputs, reference) {
  return errors(outputs, reference).reduce((most, error) =>
    Number.isNaN(error) || Math.abs(error) > most ? Math.abs(error) : most, 0);
}

/// What is wrong with the outputs, as texts; null if nothing is.
export function outputComplaint(outputs, references) {
  for (const one of references) {
    const off = errors(outputs, one), limits = decoded(one.limits, "f64");
    const limit = (i) => limits[limits.length > 1 ? i : 0];
    const wrong = [...off.keys()].filter((i) => !(Math.abs(off[i]) <= limit(i)));
    if (wrong.some((i) => Number.isNaN(off[i]))) return [`an element of ${one.output} is NaN`];
    if (wrong.length) {
      const most = Math.max(...wrong.map((i) => Math.abs(off[i])));
      return [`${one.output} is wrong in ${shown(wrong.length)} of ${shown(off.length)} elements.`, ` The largest error is ${most.toPrecision(2)}.`];
    }
    if (one.spread && !isSpread(one, off))
      return [`The errors of ${one.output} are larger, in the mean, than roundings explain.`];
  }
  return null;
}

/// Whether roundings explain the errors of all elements together, see Spread in ladder/operations/base.py.
function isSpread({ data, format, spread }, off) {
  const exact = decoded(data, format), deviations = decoded(spread.deviations, "f32"), certain = decoded(spread.certain, "u8");
  const squares = off.reduce((sum, error, i) => sum + (error ? (error / deviations[i]) ** 2 : 0), 0) / off.length;
  if (squares > spread.mean_square) return false;
  const width = off.length / certain.length, gains = [];
  certain.forEach((is, row) => {
    let product = 0, square = 0;
    for (let i = row * width; i < (row + 1) * width; ++i) {
      product += off[i] * exact[i];
      square += exact[i] ** 2;
    }
    if (is) gains.push(product / square);
  });
  return !gains.length || Math.abs(gains.reduce((a, b) => a + b) / gains.length) <= spread.gain;
}

/// Which count is beyond its limit, as lines of texts.
export function limitComplaint({ kernels }, { label, at_most, at_least, reason }) {
  const sum = (name) => kernels.reduce((all, one) => (one.totals[name] === null ? NaN : all + one.totals[name]), 0);
  const what = (name) => {
    const kinds = { ld: "of loads", st: "of stores", atom: "of atomics", gmma: "of wgmma" };
    const [, before, kind] = name.match(/^(.*)_([^_]*)$/) ?? [null, "", name];
    return `${before} ${kinds[kind] ?? kind}`.replaceAll("_", " ").trim();
  };
  for (const [name, least] of Object.entries(at_least))
    if (sum(name) < least)
      return [[`On ${label}: right, but not what the task says: ${shown(sum(name))} ${what(name)}, which has at least ${shown(least)}.`], [reason]];
  for (const [name, most] of Object.entries(at_most))
    if (!(sum(name) <= most))
      return [[`On ${label}: right, but more expensive than needed: ${shown(sum(name))} ${what(name)}, at most ${shown(most)}.`], [reason]];
  return [];
}

const shown = (count) => (Number.isNaN(count) ? "an unknown number of" : count.toLocaleString("en"));
