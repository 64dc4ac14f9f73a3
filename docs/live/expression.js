// Integer expressions in lane, evaluated as C++ would, without eval(): what ladder/counts/banks/expression.py takes, with
// its errors. Values are BigInt. tests/docs/test_live_accesses.py compares the two.

const LARGEST = 2n ** 48n, LONGEST = 2000, DEEPEST = 60, SHOWN = 60;

/// Python's idea of a space and of a letter.
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const LETTER = "[\\p{L}\\p{N}_]";
const SIGNS = "\\+\\+|--|<<|>>|<=|>=|==|!=|&&|\\|\\||[\\-+*/%&|^~!<>?:(),]";
const TOKEN = new RegExp(`${SPACE}*([0-9](?:${LETTER}|[.'])*|[A-Za-z_]${LETTER}*|${SIGNS})`, "uy");
const SPACES = new RegExp(`${SPACE}*`, "uy");
const AROUND = new RegExp(`^${SPACE}+|${SPACE}+$`, "gu");
const NUMBER = /^(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)([uU]?(?:ll|LL|[lL])?|(?:ll|LL|[lL])[uU])$/;
const WORDS = new Map([["and", "&&"], ["or", "||"], ["not", "!"], ["bitand", "&"], ["bitor", "|"], ["xor", "^"],
                       ["compl", "~"]]);
const FUNCTIONS = ["min", "max", "abs"];
/// Operators by precedence, loosest first.
const LEVELS = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!="], ["<", "<=", ">", ">="], ["<<", ">>"], ["+", "-"],
                ["*", "/", "%"]];

/// What the reader has typed is refused: what is wrong and, in the hint, what would work.
export class Refusal extends Error {
  constructor(what, hint = "") {
    super(hint ? `${what}\n${hint}` : what);
  }
}

class DivisionByZero extends Error {}

const characters = (text) => [...text].length;
const beginning = (text) => [...text].slice(0, SHOWN).join("");

class Type {
  constructor(bits, signed) {
    Object.assign(this, { bits, signed });
  }

  /// The value of this type that is equal to the given one modulo 2 to the number of bits.
  converted(value) {
    return this.signed ? BigInt.asIntN(this.bits, value) : BigInt.asUintN(this.bits, value);
  }

  holds(value) {
    return this.converted(value) === value;
  }

  /// The result of arithmetic: unsigned wraps around, signed overflow is refused.
  ofOperation(value, text) {
    if (this.signed && !this.holds(value)) throw new Refusal(`${text} overflows ${this}`);
    return this.converted(value);
  }

  toString() {
    return `${this.signed ? "" : "unsigned "}${this.bits === 32 ? "int" : "long"}`;
  }
}

const INT = new Type(32, true);
const TYPES = [INT, new Type(32, false), new Type(64, true), new Type(64, false)];

/// A subexpression: its type, a function from the lane to its value, its text.
const node = (type, value, text) => ({ type, value, text });
const asType = (one, type) => (lane) => type.converted(one.value(lane));

/// The usual arithmetic conversions: the wider type, or the unsigned one of two equally wide.
function common(...nodes) {
  const bits = Math.max(...nodes.map((one) => one.type.bits));
  const signed = nodes.every((one) => one.type.signed || one.type.bits !== bits);
  return TYPES.find((type) => type.bits === bits && type.signed === signed);
}

/// A function from the lane to the value. Throws a Refusal, as the function does.
export function expression(text) {
  const length = characters(text);
  if (length > LONGEST) throw new Refusal(`an expression of ${length} characters; at most ${LONGEST} are taken`);
  const tree = new Parser(text.replace(AROUND, "")).parse();
  return (lane) => {
    let result;
    try {
      result = tree.value(BigInt(lane));
    } catch (error) {
      if (error instanceof DivisionByZero) throw new Refusal(`${text} divides by 0 for lane = ${lane}`);
      throw error;
    }
    if (result > LARGEST || result < -LARGEST) throw new Refusal(`${text} is larger than any address`);
    return result;
  };
}

/// A recursive-descent parser with one call per level of precedence.
class Parser {
  constructor(text) {
    Object.assign(this, { text, tokens: tokens(text), next: 0, depth: 0 });
  }

  parse() {
    const tree = this.conditional();
    if (this.peek()) throw this.error();
    return tree;
  }

  peek() {
    return this.tokens[this.next].token;
  }

  /// The next token, consumed, if it is one of these; "" otherwise.
  take(...wanted) {
    const token = this.peek();
    if (!token || !wanted.includes(token)) return "";
    ++this.next;
    return token;
  }

  expect(token) {
    if (!this.take(token)) throw this.error(`${token} is missing`);
  }

  error(what = "this is no expression") {
    const token = this.peek();
    let hint = "";
    if (token === "if") hint = "In C: condition ? value : other";
    else if (token === "/" && this.tokens.at(this.next - 1).token === "/")
      hint = "In C // begins a comment; / divides whole numbers.";
    return new Refusal(marked(what, this.text, this.tokens[this.next].begin), hint);
  }

  /// The text from this token up to the current one.
  written(first) {
    const last = this.tokens.at(this.next - 1);
    return this.text.slice(this.tokens[first].begin, last.begin + last.token.length);
  }

  deeper() {
    if (++this.depth > DEEPEST) throw new Refusal(`${beginning(this.text)}... is nested too deeply`);
  }

  conditional() {
    this.deeper();
    const first = this.next, condition = this.binary(0);
    let made = condition;
    if (this.take("?")) {
      const then = this.conditional();
      this.expect(":");
      const otherwise = this.conditional(), type = common(then, otherwise);
      const a = asType(then, type), b = asType(otherwise, type);
      made = node(type, (lane) => (condition.value(lane) ? a(lane) : b(lane)), this.written(first));
    }
    --this.depth;
    return made;
  }

  binary(level) {
    if (level === LEVELS.length) return this.unary();
    const first = this.next;
    let made = this.binary(level + 1), compared = false, operation;
    while ((operation = this.take(...LEVELS[level]))) {
      if (compared) {
        --this.next;
        throw this.error("a comparison of a comparison; && joins two");
      }
      compared = ["<", "<=", ">", ">="].includes(operation);
      const right = this.binary(level + 1);
      made = combined(operation, made, right, this.written(first));
    }
    return made;
  }

  unary() {
    const first = this.next, operation = this.take("-", "+", "~", "!");
    if (!operation) return this.primary();
    this.deeper();
    const { type, value } = this.unary();
    --this.depth;
    const text = this.written(first);
    switch (operation) {
      case "!": return node(INT, (lane) => (value(lane) ? 0n : 1n), text);
      case "~": return node(type, (lane) => type.converted(~value(lane)), text);
      case "-": return node(type, (lane) => type.ofOperation(-value(lane), text), text);
      default: return node(type, value, text);
    }
  }

  primary() {
    const token = this.peek();
    if (this.take("(")) {
      const made = this.conditional();
      this.expect(")");
      return made;
    }
    if (/^[0-9]/.test(token)) {
      ++this.next;
      return literal(token);
    }
    if (FUNCTIONS.includes(token)) return this.call();
    if (this.take("lane")) return node(INT, (lane) => lane, token);
    if (/^[A-Za-z_]/.test(token) && token !== "if")
      throw new Refusal(`'${token}' has no meaning here`, `There is ${["lane", ...FUNCTIONS].join(", ")}.`);
    throw this.error();
  }

  call() {
    const first = this.next, name = this.take(...FUNCTIONS);
    this.expect("(");
    const given = [this.conditional()];
    while (this.take(",")) given.push(this.conditional());
    this.expect(")");
    const text = this.written(first);
    if (name === "abs") {
      if (given.length !== 1) throw new Refusal(`${text} needs one value`);
      const { type, value } = given[0];
      const absolute = (one) => (one < 0n ? -one : one);
      return node(type, (lane) => type.ofOperation(absolute(value(lane)), text), text);
    }
    if (given.length < 2) throw new Refusal(`${text} needs two values or more`);
    const type = common(...given), values = given.map((one) => asType(one, type));
    const better = name === "min" ? (a, b) => a < b : (a, b) => a > b;
    return node(type, (lane) => values.map((value) => value(lane)).reduce((a, b) => (better(b, a) ? b : a)), text);
  }
}

function marked(what, text, at) {
  return `${what}:\n${text}\n${" ".repeat(characters(text.slice(0, at)))}^`;
}

/// The tokens with their places, ending with an empty one.
function tokens(text) {
  const found = [];
  let position = 0;
  for (;;) {
    SPACES.lastIndex = position;
    const begin = position + SPACES.exec(text)[0].length;
    if (begin === text.length) break;
    TOKEN.lastIndex = position;
    const match = TOKEN.exec(text);
    if (!match) throw new Refusal(marked("this is no expression", text, begin));
    found.push({ begin, token: WORDS.get(match[1]) ?? match[1] });
    position = TOKEN.lastIndex;
  }
  return [...found, { begin: text.length, token: "" }];
}

function literal(token) {
  const match = NUMBER.exec(token);
  if (!match) throw new Refusal(`${token} is no whole number`);
  const digits = match[1].toLowerCase(), suffix = match[2].toLowerCase();
  const isOctal = /^0[0-7]*$/.test(digits), isDecimal = /^[1-9]/.test(digits);
  const value = BigInt(isOctal ? `0o${digits}` : digits);
  const fits = TYPES.find((type) =>
    !(suffix.includes("u") && type.signed) && !(suffix.includes("l") && type.bits === 32) &&
    !(isDecimal && !type.signed && !suffix.includes("u")) && type.holds(value));
  if (!fits) throw new Refusal(`${beginning(token)} fits no integer of 64 bits`);
  return node(fits, () => value, token);
}

const truth = (value) => (value ? 1n : 0n);
const COMPARISONS = {
  "==": (a, b) => a === b, "!=": (a, b) => a !== b, "<": (a, b) => a < b, "<=": (a, b) => a <= b,
  ">": (a, b) => a > b, ">=": (a, b) => a >= b,
};
function divided(a, b) {
  if (b === 0n) throw new DivisionByZero();
  return a / b;
}
const ARITHMETIC = {
  "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": divided,
  "%": (a, b) => a - b * divided(a, b), "&": (a, b) => a & b, "|": (a, b) => a | b, "^": (a, b) => a ^ b,
};

function combined(operation, left, right, text) {
  if (operation === "&&") return node(INT, (lane) => truth(left.value(lane) && right.value(lane)), text);
  if (operation === "||") return node(INT, (lane) => truth(left.value(lane) || right.value(lane)), text);
  if (operation === "<<" || operation === ">>")
    return node(left.type, (lane) => shifted(operation, left.type, left.value(lane), right.value(lane), text), text);
  const type = common(left, right), a = asType(left, type), b = asType(right, type);
  const compare = COMPARISONS[operation];
  if (compare) return node(INT, (lane) => truth(compare(a(lane), b(lane))), text);
  const calculate = ARITHMETIC[operation];
  return node(type, (lane) => type.ofOperation(calculate(a(lane), b(lane)), text), text);
}

function shifted(operation, type, value, by, text) {
  if (by < 0n || by >= type.bits) throw new Refusal(`${text} is a shift of ${type} by ${by} bits`);
  return type.converted(operation === "<<" ? value << by : value >> by);
}
