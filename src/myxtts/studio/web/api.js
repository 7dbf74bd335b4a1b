// Requests to the studio, texts of the page in both languages, and what the browser remembers between two visits.
export const byId = (id) => document.getElementById(id);

let catalogue = { texts: { en: {}, fa: {} }, reasons: {}, lang: "", corpus: "" };
let lang = "en";
let remembered = {};
let storageName = "";

export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

function headers() {
  const key = sessionStorage.getItem("myxtts-key");
  // Errors come in the language of the page, which need not be the browser's.
  return { "Accept-Language": lang, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}
async function askForKey() {
  const dialog = byId("key-dialog");
  if (!dialog.open) { byId("key").value = ""; dialog.showModal(); }
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  sessionStorage.setItem("myxtts-key", byId("key").value.trim());
}
export async function request(path, options = {}) {
  for (;;) {
    let response;
    try {
      response = await fetch(path, { ...options, headers: { ...options.headers, ...headers() } });
    } catch {
      throw new Refused(0, t("offline"));
    }
    if (response.ok) return response;
    if (response.status === 401) { await askForKey(); continue; }
    const body = await response.json().catch(() => null);
    throw new Refused(response.status, body && body.error ? body.error.message : `HTTP ${response.status}`);
  }
}
export const getJson = async (path, query = {}) => (await request(`${path}?${new URLSearchParams(query)}`)).json();
export const postJson = async (path, body) => (await request(path, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
})).json();

export function t(key, values = {}) {
  return fill(catalogue.texts[lang][key] || key, values);
}
export function translateReason(reason) {
  const text = lang === "fa" ? catalogue.reasons[reason.text] || reason.text : reason.text;
  const values = Object.entries(reason.values).map(([name, value]) => [name, lang === "fa" ? toPersian(value) : value]);
  return fill(text, Object.fromEntries(values));
}
function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}
function toPersian(text) {
  return text.replace(/\d/g, (digit) => "۰۱۲۳۴۵۶۷۸۹"[digit]).replace(".", "٫");
}
export function number(value, digits = 0) {
  return Number(value).toLocaleString(lang, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}
export function percent(share) {
  return Number(share).toLocaleString(lang, { style: "percent", minimumFractionDigits: 2 });
}
export const currentLang = () => lang;

export async function loadTexts() {
  catalogue = await (await fetch("texts.json")).json();
  storageName = `myxtts-studio:${catalogue.corpus}`;
  remembered = JSON.parse(localStorage.getItem(storageName) || "{}");
  const wanted = new URLSearchParams(location.search).get("lang") || recall("lang", "") || catalogue.lang || navigator.language.slice(0, 2);
  setLang(wanted === "fa" ? "fa" : "en");
  byId("corpus").textContent = catalogue.corpus;
}
export function setLang(wanted) {
  lang = wanted;
  document.documentElement.lang = lang;
  document.documentElement.dir = lang === "fa" ? "rtl" : "ltr";
  document.title = `${catalogue.corpus} · ${t("title")}`;
  for (const item of document.querySelectorAll("[data-text]")) item.textContent = t(item.dataset.text);
  for (const item of document.querySelectorAll("[data-hint]")) {
    item.title = t(item.dataset.hint);
    item.setAttribute("aria-label", t(item.dataset.hint));
    if ("placeholder" in item) item.placeholder = t(item.dataset.hint);
  }
}
export const recall = (name, otherwise) => (name in remembered ? remembered[name] : otherwise);
export function remember(values) {
  Object.assign(remembered, values);
  localStorage.setItem(storageName, JSON.stringify(remembered));
}

let timer = 0;
export function say(text, isError = false) {
  clearTimeout(timer);
  byId("message").textContent = text;
  byId("message").classList.toggle("error", isError);
  timer = setTimeout(() => { byId("message").textContent = ""; }, isError ? 10000 : 2500);
}
// The revision of the corpus that the page shows: edits of an older one are refused.
export const seen = { revision: 0 };
export function describeCorpus(answer) {
  seen.revision = answer.revision;
  byId("used").textContent = t("used", { count: number(answer.counts.used), minutes: number(answer.counts.seconds / 60, 1) });
  byId("undo").disabled = !answer.undo;
  byId("redo").disabled = !answer.redo;
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.querySelector("b").textContent = number(answer.counts[button.dataset.filter]);
  }
}

let context = null;
export function audioContext() {
  if (!context) context = new AudioContext();
  if (context.state === "suspended") context.resume();
  return context;
}
