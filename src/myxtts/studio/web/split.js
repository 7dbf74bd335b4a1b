// The form of a split: the place of the cut on the waveform, and the text of both parts.
import { byId, number, t } from "./api.js";

const MARKS = /[.!?…:;,،؛؟]$/;

export class SplitForm {
  constructor(wave, onSplit) {
    this.wave = wave;
    this.clip = null;
    this.isTyped = false;
    this.onSplit = onSplit;
    byId("split-form").addEventListener("submit", (event) => { event.preventDefault(); this.confirm(); });
    byId("split-cancel").addEventListener("click", () => this.close());
    for (const id of ["split-first", "split-second"]) byId(id).addEventListener("input", () => { this.isTyped = true; });
  }
  get isOpen() { return this.clip !== null; }
  open(clip) {
    this.clip = clip;
    this.isTyped = false;
    byId("split-form").hidden = false;
    byId("text-form").hidden = true;
    this.wave.beginCut();
    byId("wave").focus({ preventScroll: true });
  }
  close() {
    if (!this.isOpen) return;
    this.clip = null;
    byId("split-form").hidden = true;
    byId("text-form").hidden = false;
    this.wave.endCut();
    byId("wave").blur();
  }
  update() {
    if (!this.isOpen || this.wave.cut === null) return;
    byId("split-place").textContent = t("splitAt", { seconds: number(this.wave.cut, 2) });
    if (this.isTyped) return;
    [byId("split-first").value, byId("split-second").value] = shareText(this.clip.text, this.#spokenShare());
  }
  confirm() {
    if (!this.isOpen || this.wave.cut === null) return;
    this.onSplit(this.wave.cut, [byId("split-first").value, byId("split-second").value]);
  }
  // Share of the speech before the cut; pauses are not counted.
  #spokenShare() {
    const spoken = (end) => end - this.wave.pauses.reduce((sum, pause) => sum + Math.max(0, Math.min(end, pause.end) - pause.start), 0);
    return spoken(this.wave.cut) / Math.max(0.01, spoken(this.wave.duration));
  }
  press(key, isShifted) {
    const actions = {
      " ": () => this.wave.toggle(), arrowleft: () => this.wave.moveCut(-1, isShifted), arrowright: () => this.wave.moveCut(1, isShifted),
      enter: () => this.confirm(), escape: () => this.close(), e: () => byId("split-first").focus(),
    };
    if (!actions[key]) return false;
    actions[key]();
    return true;
  }
}

// Divides a text between two words, near the share of letters; the end of a clause is preferred.
export function shareText(text, share) {
  const words = text.split(" "), total = text.length || 1;
  let best = 0, bestCost = Infinity, length = 0;
  for (let count = 1; count < words.length; count++) {
    length += words[count - 1].length + 1;
    const cost = Math.abs(length / total - share) - (MARKS.test(words[count - 1]) ? 0.15 : 0);
    if (cost < bestCost) [best, bestCost] = [count, cost];
  }
  return best ? [words.slice(0, best).join(" "), words.slice(best).join(" ")] : [text, ""];
}
