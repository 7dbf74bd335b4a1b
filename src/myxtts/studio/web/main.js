// Start of the page: views, keys, help and language.
import { byId, currentLang, loadTexts, recall, remember, say, setLang, t } from "./api.js";
import { ClipsView } from "./clips.js";
import { RecordView } from "./record.js";

const KEYS = [
  ["Space", "keyPlay"], ["J ↓  K ↑", "keyMove"], ["E  Enter", "keyEdit"], ["Enter", "keySave"], ["Esc", "keyLeave"],
  ["Ctrl+Space  F2", "keyPlayText"], ["A", "keyAccept"], ["D", "keyDrop"], ["S", "keySplit"], ["← →", "keySplitMove"], ["M", "keyMerge"],
  ["U  Ctrl+Z", "keyUndo"], ["/", "keySearch"], ["1 2 3 4", "keyFilter"], ["C  R", "keyView"], ["Space", "keyTake"], ["R", "keyAgain"],
  ["S", "keySkip"], ["P", "keyPlayTake"], ["?", "keyHelp"],
];

await loadTexts();
const views = { clips: new ClipsView(), record: new RecordView() };
let view = "";

async function choose(name) {
  if (view === name) return;
  if (view) views[view].leave();
  view = name;
  remember({ view });
  for (const other of Object.keys(views)) {
    byId(`${other}-view`).hidden = other !== name;
    byId(`view-${other}`).setAttribute("aria-selected", String(other === name));
  }
  try { await views[name].open(); } catch (error) { say(error.message, true); }
}
for (const name of Object.keys(views)) byId(`view-${name}`).addEventListener("click", (event) => { event.currentTarget.blur(); choose(name); });

function drawKeys() {
  byId("keys").replaceChildren(...KEYS.map(([keys, about]) => {
    const row = document.createElement("tr"), left = document.createElement("td"), right = document.createElement("td");
    left.append(...keys.split(/ +/).flatMap((key) => [Object.assign(document.createElement("kbd"), { textContent: key }), " "]));
    right.textContent = t(about);
    row.append(left, right);
    return row;
  }));
}
for (const kind of ["undo", "redo"]) byId(kind).addEventListener("click", () => views[view].undo(kind));
byId("help-button").addEventListener("click", () => byId("help").showModal());
byId("switch").addEventListener("click", (event) => {
  event.currentTarget.blur();
  const lang = currentLang() === "fa" ? "en" : "fa";
  remember({ lang });
  setLang(lang);
  drawKeys();
  views[view].redraw();
});

// The letter on the key cap of an English keyboard, so that keys work with a Persian layout too.
function readKey(event) {
  if (/^[\x21-\x7e]$/.test(event.key)) return event.key.toLowerCase();
  const letter = /^(?:Key|Digit)(.)$/.exec(event.code);
  return letter ? letter[1].toLowerCase() : event.key.toLowerCase();
}
const isField = (item) => item instanceof HTMLElement && (item.matches("textarea, select") || item.matches("input:not([type=checkbox])"));

function pressInField(event, field) {
  const key = event.key.toLowerCase();
  if (key === "escape") {
    event.preventDefault();
    if (field.closest("#text-form")) views.clips.cancelText();
    field.blur();
    if (field.closest("#split-form")) views.clips.splitForm.close();
  }
  else if (key === "f2" || (key === " " && event.ctrlKey)) { event.preventDefault(); views.clips.wave.toggle(); }
  else if (key === "enter" && !event.shiftKey && !event.isComposing && field.matches("#text, #speaker, #language")) {
    event.preventDefault();
    views.clips.save();
  } else if (key === "enter" && !event.isComposing && field.closest("#split-form")) { event.preventDefault(); views.clips.splitForm.confirm(); }
  else if (key === "enter" && field.matches("#search")) { event.preventDefault(); field.blur(); }
}
addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  const field = event.target;
  if (isField(field)) { pressInField(event, field); return; }
  const key = readKey(event);
  if ((event.ctrlKey || event.metaKey) && key === "z") {
    event.preventDefault();
    views[view].undo(event.shiftKey ? "redo" : "undo");
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // Space and Enter press the button that has the focus.
  if (field instanceof HTMLButtonElement && (key === "enter" || key === " ")) return;
  if (event.key === "?") { event.preventDefault(); byId("help").showModal(); return; }
  if (key === "c" && view === "record") { choose("clips"); return; }
  if (key === "r" && view === "clips") { choose("record"); return; }
  if (views[view].press(key, event.shiftKey)) event.preventDefault();
});
// A button that was clicked must not take the next Space from the player.
addEventListener("click", (event) => { if (event.target.closest("button") && !document.querySelector("dialog[open]") && event.detail > 0) event.target.closest("button").blur(); });
// Another tab may have worked meanwhile; a text that is being typed stays.
addEventListener("visibilitychange", () => {
  const typed = views.clips.current && byId("text").value !== views.clips.current.text;
  if (!document.hidden && view === "clips" && !typed && !views.clips.splitForm.isOpen) views.clips.reload({ around: recall("id", "") }).catch(() => {});
});

drawKeys();
await choose(recall("view", "clips"));
document.documentElement.dataset.ready = "yes";
