// One access of a warp as a reader types it: addresses, swizzle and lanes, checked as ladder/counts/banks/access.py and
// ladder/counts/banks/explorer.py check them, with their errors. What an access costs is not here: the emulator's bank model
// says it.
import { expression, Refusal } from "./expression.js";

export const LANES = 32, BANKS = 32;
const BANK_BYTES = 4, ROW_BYTES = BANKS * BANK_BYTES, MATRIX_ROW_BYTES = 16, ALL_LANES = 2 ** LANES - 1;
/// Of an address: the highest bit that a swizzle may start at, and its largest shift.
const HIGHEST = 24;
const MATRIX_OPS = ["ldmatrix", "stmatrix"];

export const isMatrix = (op) => MATRIX_OPS.includes(op);
const range = (count) => [...Array(count).keys()];
export const lanesOf = (mask) => range(LANES).filter((lane) => (mask >>> lane) & 1);
const quoted = (text) => (text.includes("'") && !text.includes('"') ? `"${text}"` : `'${text}'`);

/// An access is { op, width, addresses } with null for lanes that take no part.
export const bytesOf = ({ op, width }) => (isMatrix(op) ? MATRIX_ROW_BYTES : width);
export const usedLanes = ({ op, width, addresses }) =>
  range(isMatrix(op) ? 8 * width : LANES).filter((lane) => addresses[lane] !== null);
export const accessText = ({ op, width }) =>
  isMatrix(op) ? `${op}.x${width}` : `${op}, ${width} byte${width > 1 ? "s" : ""} a lane`;

/// The banks of a lane's bytes.
export function banksOf(access, lane) {
  const first = Math.floor(access.addresses[lane] / BANK_BYTES) % BANKS;
  return range(Math.max(1, bytesOf(access) / BANK_BYTES)).map((number) => first + number);
}

/// The access itself if the hardware would take it; its op and its width are among those that the page offers.
function checked(access) {
  const bytes = bytesOf(access), lanes = usedLanes(access);
  for (const lane of lanes) {
    const address = access.addresses[lane];
    if (address < 0 || address >= 2 ** 32 - 16)
      throw new Refusal(`lane ${lane}'s address is ${address}, which is outside shared memory`);
    if (address % bytes)
      throw new Refusal(`lane ${lane}'s address ${address} is not a multiple of ${bytes}`,
        `An access of ${bytes} bytes must be aligned to ${bytes} bytes.`);
  }
  if (isMatrix(access.op) && lanes.length !== 8 * access.width)
    throw new Refusal(`${accessText(access)} takes the addresses of its rows from the lanes 0 to ` +
      `${8 * access.width - 1}; none of them can be left out`);
  return access;
}

function swizzle(bits, base, shift) {
  if (!(bits <= 16 && base <= HIGHEST && bits <= shift && shift <= HIGHEST))
    throw new Refusal(`swizzle ${bits},${base},${shift}: B bits from bit M + S into those from bit M`,
      "It needs B <= S, so that no bit is both moved and changed.");
  return { bits, base, shift };
}

export function parseSwizzle(text) {
  const match = /^\s*<?\s*(\d{1,9})\s*,\s*(\d{1,9})\s*,\s*(\d{1,9})\s*>?\s*$/.exec(text);
  if (!match) throw new Refusal(`${quoted(text)} is not B,M,S`, "For example --swizzle 3,4,3");
  return swizzle(...match.slice(1).map(Number));
}

function swizzled(access, { bits, base, shift }) {
  const mask = ((1n << BigInt(bits)) - 1n) << BigInt(base);
  const moved = (address) => Number(BigInt(address) ^ ((BigInt(address) >> BigInt(shift)) & mask));
  return checked({ ...access, addresses: access.addresses.map((one) => (one === null ? null : moved(one))) });
}

/// A mask of lanes: 0xffff, 0b101, or lanes and ranges like 0-15,20.
export function parseMask(text) {
  const mask = /^0[xb]/.test(text) ? parsedBits(text) : parsedRanges(text);
  if (mask === null)
    throw new Refusal(`${quoted(text)} is no set of lanes`, "A mask like 0x0000ffff, or lanes like 0-15,20.");
  if (mask <= 0n || mask > BigInt(ALL_LANES))
    throw new Refusal(`${text} has none of the lanes 0 to 31, or more than these`);
  return Number(mask);
}

const parsedBits = (text) => (/^(0x[0-9a-f]+|0b[01]+)$/i.test(text) ? BigInt(text) : null);

function parsedRanges(text) {
  let mask = 0n;
  for (const part of text.split(",")) {
    const match = /^\s*(\d+)\s*(?:-\s*(\d*)\s*)?$/.exec(part);
    const first = Number(match?.[1]), last = Number(match?.[2] || first);
    if (!match || last < first || last >= LANES) return null;
    for (let lane = first; lane <= last; ++lane) mask |= 1n << BigInt(lane);
  }
  return mask;
}

/// As ranges: 0-7, 12.
export function lanesText(lanes) {
  const runs = [];
  for (const lane of lanes)
    if (runs.length && lane === runs.at(-1)[1] + 1) runs.at(-1)[1] = lane;
    else runs.push([lane, lane]);
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");
}

/// The access of the page's fields, as they are and swizzled; the swizzle is null if there is none.
export function accessOf({ op, width, address, swizzle: swizzleText, active }) {
  const chosen = swizzleText === "" ? null : parseSwizzle(swizzleText);
  const mask = active === "" ? ALL_LANES : parseMask(active), at = expression(address);
  const values = range(LANES).map((lane) => Number(at(lane)));
  const addresses = values.map((value, lane) => ((mask >>> lane) & 1 ? value : null));
  const plain = checked({ op, width, addresses });
  return { plain, swizzle: chosen, access: chosen ? swizzled(plain, chosen) : plain };
}

/// How the access is served; `model` is the emulator's, of an access.
export function served(access, model) {
  const { passes, ...cost } = model(access);
  return { ...cost, passes: passes.map((one) => ({ ...one, cells: cellsOf(access, one) })) };
}

/// The data that the banks deliver in each wavefront of a pass, with all lanes that read it.
function cellsOf(access, { lanes, wavefronts }) {
  const unitBytes = Math.max(bytesOf(access), BANK_BYTES), isAtomic = access.op.startsWith("atom");
  const wanted = new Map();
  for (const lane of usedLanes(access).filter((one) => lanes.includes(one))) {
    const unit = Math.floor(access.addresses[lane] / unitBytes);
    // Atomics on one word are serialised; every other access delivers a word to all its lanes at once.
    const key = isAtomic ? `${unit} ${lane}` : `${unit}`;
    if (!wanted.has(key)) wanted.set(key, { unit, lanes: [] });
    wanted.get(key).lanes.push(lane);
  }
  const given = Array(BANKS).fill(0);
  const cells = [...wanted.values()].map(({ unit, lanes: own }) => {
    const bank = ((unit * unitBytes) / BANK_BYTES) % BANKS;
    return { wavefront: given[bank]++, bank, banks: unitBytes / BANK_BYTES, address: unit * unitBytes, lanes: own };
  });
  if (Math.max(...given) !== wavefronts)
    throw new Error(`${Math.max(...given)} wavefronts laid out, ${wavefronts} in the model`);
  return cells;
}

/// The swizzles of the fewest bits that leave no conflict or else, if it helps, the one that leaves the fewest.
export function remediesFor(plain, conflicts, model) {
  const remedies = [];
  let best = null;
  for (const one of conflicts ? candidates(plain) : []) {
    const left = model(swizzled(plain, one)).conflicts;
    if (left === 0) remedies.push(one);
    if (best === null || left < best.conflicts) best = { ...one, conflicts: left };
  }
  const fewest = Math.min(...remedies.map((one) => one.bits));
  const helps = best !== null && !remedies.length && best.conflicts < conflicts;
  return { remedies: remedies.filter((one) => one.bits === fewest), best: helps ? best : null };
}

/// They keep each lane's bytes together and change only the address bits that select the bank.
function* candidates(plain) {
  const bitLength = (value) => value.toString(2).length - (value === 0 ? 1 : 0);
  const top = bitLength(Math.max(0, ...plain.addresses.filter((one) => one !== null)));
  const lowest = Math.log2(Math.max(bytesOf(plain), BANK_BYTES)), bankBits = Math.log2(ROW_BYTES);
  for (let bits = 1; bits <= bankBits - lowest; ++bits)
    for (let base = lowest; base <= bankBits - bits; ++base)
      for (let shift = bits; shift <= Math.min(HIGHEST, Math.max(bits, top - base)); ++shift)
        yield swizzle(bits, base, shift);
}
