// Theme, menu, copy buttons and search. Everything works from a file:// address, too: nothing is fetched.
(() => {
  "use strict";
  const root = document.documentElement;
  const words = root.dataset;
  const $ = (selector) => document.querySelector(selector);

  $("#theme")?.addEventListener("click", () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    root.dataset.theme = theme;
    try { localStorage.setItem("myxtts-theme", theme); } catch { /* private windows may have no storage */ }
  });

  const menu = $("#menu"), pages = $(".pages");
  menu?.addEventListener("click", () => menu.setAttribute("aria-expanded", String(pages.classList.toggle("open"))));

  const copyText = async (text) => {
    try { await navigator.clipboard.writeText(text); } catch {
      const area = Object.assign(document.createElement("textarea"), { value: text });
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  for (const block of document.querySelectorAll(".block")) {
    const button = Object.assign(document.createElement("button"), { className: "copy", type: "button" });
    button.textContent = words.copy;
    button.addEventListener("click", async () => {
      await copyText(block.querySelector("pre").textContent);
      button.textContent = words.copied;
      setTimeout(() => { button.textContent = words.copy; }, 1500);
    });
    block.append(button);
  }

  // Arabic letters for Persian ones, vowel signs and half-spaces are spelling, not meaning; digits may be of either script.
  const DROPPED = /[\u200c\u200d\u200e\u200f\u064b-\u065f\u0670]/;
  const SAME = { "ي": "ی", "ك": "ک", "ة": "ه", "ۀ": "ه", "أ": "ا", "إ": "ا" };
  const plain = (char) => {
    const code = char.charCodeAt(0);
    if (code >= 0x6f0 && code <= 0x6f9) return String(code - 0x6f0);
    return DROPPED.test(char) ? "" : SAME[char] ?? char.toLowerCase();
  };
  const normalize = (text) => Array.from(text, plain).join("");

  const findAll = (entries, query) => {
    const terms = normalize(query).split(/\s+/).filter(Boolean);
    if (!terms.length) return [];
    const score = (entry) => {
      let sum = 0;
      for (const term of terms) {
        const inPage = entry.plainPage.includes(term), inTitle = entry.plainTitle.includes(term);
        const count = entry.plainText.split(term).length - 1;
        if (!inTitle && !inPage && !count) return 0;
        sum += (inTitle ? 12 : 0) + (inPage ? 4 : 0) + Math.min(count, 5);
      }
      return sum;
    };
    return entries.map((entry) => ({ entry, score: score(entry) })).filter((one) => one.score > 0)
      .sort((a, b) => b.score - a.score).slice(0, 12).map((one) => ({ ...one.entry, terms }));
  };

  // A piece of the text around the first hit, with all hits marked.
  const showSnippet = (into, text, terms) => {
    const kept = [];
    let flat = "";
    Array.from(text).forEach((char, index) => { for (const one of plain(char)) { flat += one; kept.push(index); } });
    const chars = Array.from(text), hits = new Set();
    let first = -1;
    for (const term of terms) {
      for (let at = flat.indexOf(term); at >= 0; at = flat.indexOf(term, at + term.length)) {
        first = first < 0 ? at : Math.min(first, at);
        for (let index = kept[at]; index <= kept[at + term.length - 1]; index++) hits.add(index);
      }
    }
    const start = Math.max(0, first < 0 ? 0 : kept[first] - 40), end = Math.min(chars.length, start + 160);
    if (start) into.append("… ");
    for (let index = start; index < end;) {
      const isHit = hits.has(index);
      let piece = "";
      while (index < end && hits.has(index) === isHit) piece += chars[index++];
      into.append(isHit ? Object.assign(document.createElement("mark"), { textContent: piece }) : piece);
    }
    if (end < chars.length) into.append(" …");
  };

  const box = $("#find"), list = $("#found");
  let entries = null;
  const load = () => new Promise((resolve) => {
    if (entries) return resolve();
    const script = Object.assign(document.createElement("script"), { src: box.dataset.index });
    script.onload = () => {
      entries = window.searchIndex.map(([address, page, title, text]) => ({
        address, page, title, text,
        plainPage: normalize(page), plainTitle: normalize(title), plainText: normalize(text),
      }));
      resolve();
    };
    document.head.append(script);
  });
  const draw = async () => {
    await load();
    const found = findAll(entries, box.value);
    list.replaceChildren(...found.map((one) => {
      const item = document.createElement("li"), link = document.createElement("a"), text = document.createElement("p");
      link.href = one.address;
      link.textContent = one.title === one.page ? one.page : `${one.page} › ${one.title}`;
      showSnippet(text, one.text, one.terms);
      item.append(link, text);
      return item;
    }));
    if (!found.length && box.value.trim()) {
      list.append(Object.assign(document.createElement("li"), { textContent: words.nothing }));
    }
    list.hidden = !box.value.trim();
  };
  box?.addEventListener("focus", load);
  box?.addEventListener("input", draw);
  box?.addEventListener("keydown", (event) => {
    const items = [...list.querySelectorAll("li")], at = items.findIndex((item) => item.classList.contains("chosen"));
    if (event.key === "Escape") { list.hidden = true; box.blur(); }
    if (event.key === "Enter") (items[Math.max(at, 0)]?.querySelector("a"))?.click();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      items[at]?.classList.remove("chosen");
      const next = items[(at + (event.key === "ArrowDown" ? 1 : -1) + items.length) % items.length];
      next?.classList.add("chosen");
      next?.scrollIntoView({ block: "nearest" });
    }
  });
  document.addEventListener("click", (event) => { if (list && !event.target.closest(".find")) list.hidden = true; });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); box?.focus(); }
  });
})();
