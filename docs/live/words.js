// Says what the page says in the page's language, as it appears. Whole texts are looked up in the table #words, else
// their parts between punctuation; {0}, {1}, ... stand for figures. A text that is not there stays in English.
const WORDS = JSON.parse(document.getElementById("words").textContent);
const FIGURE = /(?<![\w.])\d+(?:[.,]\d+)*(?:e[+-]\d+)?/g;

function translated(text) {
  const figures = text.match(FIGURE) ?? [];
  let number = 0;
  const message = text.trim().replace(/\s+/g, " ").replace(FIGURE, () => `{${number++}}`);
  return WORDS[message]?.replace(/\{(\d+)\}/g, (_, index) => figures[index]);
}

function said(text) {
  return translated(text) ?? text.trim().split(/(?<=[.:,])\s+|\s+(?=\()/).map((part) => translated(part) ?? part).join(" ");
}

function translate(root) {
  const nodes = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = root.nodeType === Node.TEXT_NODE ? root : nodes.nextNode(); node; node = nodes.nextNode()) {
    if (!/[A-Za-z]{2}/.test(node.data) || node.parentElement?.closest("script, code, pre, textarea")) continue;
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
