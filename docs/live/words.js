// Says what the page says in the page's language, as it appears. Whole texts are looked up in the table #words, else
// in the messages of the emulator and the checks, else their parts between punctuation. {0}, {1}, ... stand for
// figures, {name} for other texts, which may be messages themselves. A text that is not there stays in English.
const WORDS = JSON.parse(document.getElementById("words").textContent);
const FIGURE = /(?<![\w.])\d+(?:[.,]\d+)*(?:e[+-]\d+)?/g;
const FIELD = /\{([a-z]\w*)\}/;
const MESSAGES = await (await fetch(`messages.${document.documentElement.lang}.json`)).json();
/// [pattern, names of its fields, translation].
const FORMS = Object.entries({ ...WORDS, ...MESSAGES }).filter(([form]) => FIELD.test(form)).map(([form, own]) => {
  const parts = form.split(FIELD), literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const pattern = parts.map((part, i) => (i % 2 ? "(.+?)" : literal(part))).join("");
  return [new RegExp(`^${pattern}$`), parts.filter((_, i) => i % 2), own];
});

function translated(text) {
  const plain = text.trim().replace(/\s+/g, " "), figures = plain.match(FIGURE) ?? [];
  let number = 0;
  const message = plain.replace(FIGURE, () => `{${number++}}`);
  return WORDS[plain] ?? MESSAGES[plain] ?? WORDS[message]?.replace(/\{(\d+)\}/g, (_, index) => figures[index]) ?? formed(plain);
}

/// As retold() in ladder/run/emulator/forms.py.
function formed(text) {
  for (const [pattern, names, own] of FORMS) {
    const found = text.match(pattern);
    if (found) return names.reduce((all, name, i) => all.replaceAll(`{${name}}`, () => translated(found[i + 1]) ?? found[i + 1]), own);
  }
  return undefined;
}

/// Sentences and, where one is not there, its parts.
function said(text, ends = [/(?<=[.:])\s+/, /(?<=,)\s+|\s+(?=\()/]) {
  const whole = translated(text), [end, ...others] = ends;
  if (whole !== undefined || !end) return whole ?? text;
  return text.trim().split(end).map((part) => said(part, others)).join(" ");
}

function translate(root) {
  const nodes = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = root.nodeType === Node.TEXT_NODE ? root : nodes.nextNode(); node; node = nodes.nextNode()) {
    if (!/[A-Za-z]{2}/.test(node.data) || node.parentElement?.closest("script, style, code, pre, textarea")) continue;
    const [, before, text, behind] = node.data.match(/^(\s*)(.*?)(\s*)$/s), own = said(text);
    if (own !== text.replace(/\s+/g, " ")) node.data = before + own + behind;
  }
}

translate(document.body);
document.querySelectorAll("[placeholder]").forEach((field) => (field.placeholder = said(field.placeholder)));
document.title = said(document.title);
new MutationObserver((changes) => {
  for (const { type, target, addedNodes } of changes)
    if (type === "characterData") translate(target);
    else addedNodes.forEach(translate);
}).observe(document.body, { childList: true, subtree: true, characterData: true });
