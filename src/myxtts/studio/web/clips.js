// List of clips and the clip that is shown: hear, correct, accept, drop, merge, undo.
import { byId, describeCorpus, getJson, number, percent, postJson, recall, remember, say, seen, t, translateReason } from "./api.js";
import { SplitForm } from "./split.js";
import { Wave } from "./wave.js";

const FILTERS = ["all", "doubtful", "changed", "dropped"];

export class ClipsView {
  constructor() {
    this.filter = recall("filter", "all");
    this.sort = recall("sort", "doubt");
    this.search = recall("search", "");
    this.clips = [];
    this.offset = 0;
    this.total = 0;
    this.index = 0;
    this.detail = null;
    this.isBusy = false;
    // Texts that could not be saved, because of another tab or a studio that has ended, by clip.
    this.drafts = new Map();
    this.saving = null;
    this.wave = new Wave(byId("wave"), () => this.#showWaveState());
    this.splitForm = new SplitForm(this.wave, (at, texts) => this.edit("split", { id: this.current.id, at_s: at, texts }, "splitSaid"));
    this.#listen();
  }
  get current() { return this.clips[this.index - this.offset] || null; }

  #listen() {
    byId("search").value = this.search;
    byId("sort").value = this.sort;
    byId("autoplay").checked = recall("autoplay", false);
    byId("autoplay").addEventListener("change", () => remember({ autoplay: byId("autoplay").checked }));
    for (const button of document.querySelectorAll("[data-filter]")) {
      button.addEventListener("click", () => this.choose({ filter: button.dataset.filter }));
    }
    byId("sort").addEventListener("change", () => this.choose({ sort: byId("sort").value }));
    let timer = 0;
    byId("search").addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.choose({ search: byId("search").value }), 200);
    });
    byId("list").addEventListener("click", (event) => {
      const row = event.target.closest("li");
      if (row) this.show(this.offset + Number(row.dataset.place));
    });
    for (const id of ["text", "speaker", "language"]) byId(id).addEventListener("change", () => this.saveLeft());
    byId("text-form").addEventListener("submit", (event) => { event.preventDefault(); this.save(); });
    const actions = {
      play: () => this.wave.toggle(), accept: () => this.accept(), drop: () => this.drop(), split: () => this.split(),
      "merge-next": () => this.merge("next"), "merge-previous": () => this.merge("previous"),
      previous: () => this.move(-1), next: () => this.move(1),
      "page-before": () => this.show(Math.max(0, this.offset - 1)), "page-after": () => this.show(this.offset + this.clips.length),
    };
    for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
  }

  async open() { await this.reload({ around: recall("id", "") }); }
  async choose(change) {
    const around = this.current ? this.current.id : "";
    Object.assign(this, change);
    remember(change);
    this.offset = this.index = 0;
    await this.reload({ around });
  }
  chooseFilter(place) { return this.choose({ filter: FILTERS[place] }); }

  // Loads the window of the list again, and shows the clip that `around` names, or the one at the same place.
  async reload({ around = "" } = {}) {
    const query = { filter: this.filter, sort: this.sort, search: this.search, offset: this.index, around };
    const answer = await getJson("api/clips", query);
    Object.assign(this, { clips: answer.clips, offset: answer.offset, total: answer.total });
    describeCorpus(answer);
    this.index = answer.place !== null ? answer.place : Math.min(this.index, Math.max(0, this.total - 1));
    this.#drawList();
    await this.#showCurrent();
  }
  async show(index) {
    if (index < 0 || index >= this.total) return;
    this.index = index;
    if (!this.current) { await this.reload(); return; }
    this.#drawList();
    await this.#showCurrent();
  }
  move(step) { return this.show(this.index + step); }

  #drawList() {
    byId("list").replaceChildren(...this.clips.map((clip, place) => {
      const row = document.createElement("li"), said = document.createElement("span"), length = document.createElement("small");
      row.dataset.place = place;
      row.classList.toggle("doubtful", clip.doubtful);
      row.classList.toggle("changed", clip.changed);
      row.classList.toggle("dropped", clip.status === "dropped");
      row.setAttribute("aria-current", String(this.offset + place === this.index));
      said.className = "said";
      said.textContent = clip.text || clip.id;
      length.textContent = clip.seconds === null ? "–" : number(clip.seconds, 1);
      row.append(document.createElement("i"), said, length);
      return row;
    }));
    const shown = byId("list").querySelector("[aria-current=true]");
    if (shown) shown.scrollIntoView({ block: "nearest" });
    for (const button of document.querySelectorAll("[data-filter]")) button.setAttribute("aria-pressed", String(button.dataset.filter === this.filter));
    byId("page-place").textContent = this.total ? `${number(this.offset + 1)}–${number(this.offset + this.clips.length)} / ${number(this.total)}` : "";
    byId("page-before").disabled = this.offset === 0;
    byId("page-after").disabled = this.offset + this.clips.length >= this.total;
  }

  async #showCurrent() {
    const clip = this.current;
    byId("clip").hidden = !clip;
    byId("no-clip").hidden = Boolean(clip);
    this.splitForm.close();
    if (!clip) {
      this.wave.clear();
      byId("no-clip").firstElementChild.textContent = t(this.filter === "all" && !this.search ? "empty" : "none");
      return;
    }
    remember({ id: clip.id });
    this.detail = null;
    this.#drawClip(clip);
    byId("figures").replaceChildren();
    const detail = await getJson("api/clip", { id: clip.id });
    if (this.current !== clip) return;
    this.detail = detail;
    this.#drawDetail(detail);
    if (detail.problem) { this.wave.clear(); return; }
    if (await this.wave.load(clip.id, detail.pauses) && byId("autoplay").checked) this.wave.play();
  }
  #drawClip(clip, keepsFields = false) {
    byId("clip-place").textContent = t("place", { place: number(this.index + 1), total: number(this.total) });
    byId("clip-id").textContent = clip.id;
    const state = clip.status === "open" ? "stateOpen" : clip.status === "dropped" ? "stateDropped" : clip.new ? "stateNew" : "";
    byId("clip-state").textContent = state && t(state);
    if (!keepsFields) {
      byId("text").value = this.drafts.get(clip.id) ?? clip.text;
      byId("speaker").value = clip.speaker;
      byId("language").value = clip.language;
    }
    byId("text").classList.toggle("unsaved", this.drafts.has(clip.id));
    byId("before").hidden = clip.original === clip.text;
    byId("before-text").textContent = clip.original;
    byId("drop-text").textContent = t(clip.status === "dropped" ? "restore" : "drop");
    byId("accept").disabled = !clip.doubtful;
    byId("reasons-box").hidden = !clip.reasons.length;
    byId("doubt").textContent = number(clip.doubt, 2);
    byId("reasons").replaceChildren(...clip.reasons.map((reason) => Object.assign(document.createElement("li"), { textContent: translateReason(reason) })));
    byId("problem").hidden = true;
  }
  #drawDetail(detail) {
    byId("problem").hidden = !detail.problem;
    byId("problem").textContent = detail.problem || "";
    byId("merge-next").disabled = !detail.next;
    byId("merge-previous").disabled = !detail.previous;
    if (detail.problem) return;
    const figures = [
      ["length", t("seconds", { value: number(detail.seconds, 2) })], ["level", t("decibels", { value: number(detail.level_db, 1) })],
      ["noise", t("decibels", { value: number(detail.noise_db, 1) })], ["distance", t("decibels", { value: number(detail.snr_db, 1) })], ["clipping", percent(detail.clipped_share)],
    ];
    byId("figures").replaceChildren(...figures.map(([key, value]) => {
      const box = document.createElement("div"), name = document.createElement("dt"), shown = document.createElement("dd");
      name.textContent = t(key);
      shown.textContent = value;
      box.append(name, shown);
      return box;
    }));
  }
  #showWaveState() {
    byId("play").firstElementChild.textContent = t(this.wave.playing ? "stop" : "play");
    this.splitForm.update();
  }
  redraw() {
    this.#drawList();
    if (this.current) { this.#drawClip(this.current, true); if (this.detail) this.#drawDetail(this.detail); }
    else this.#showCurrent();
    this.#showWaveState();
  }

  // Sends one edit and shows what it made. Where another tab was faster, the list is loaded again.
  async edit(kind, fields, message, { advance = false, stay = false } = {}) {
    if (this.isBusy) return false;
    this.isBusy = true;
    const before = this.current ? this.current.id : "";
    try {
      const answer = await postJson("api/edit", { revision: seen.revision, kind, ...fields });
      this.drafts.delete(fields.id);
      if (!stay) this.wave.stop();
      await this.reload({ around: stay && this.current ? this.current.id : answer.shown || before });
      if (advance && this.current && this.current.id === before && this.index < this.total - 1) await this.move(1);
      say(t(message));
      return true;
    } catch (error) {
      if (kind === "change" && fields.text !== undefined) this.drafts.set(fields.id, fields.text);
      if (error.status === 409) await this.reload({ around: this.current ? this.current.id : "" });
      say(error.status === 409 ? t("otherTab") : error.message, true);
      return false;
    } finally {
      this.isBusy = false;
    }
  }
  // The fields that differ from the stored clip.
  #readFields() {
    const fields = { id: this.current.id };
    for (const name of ["text", "speaker", "language"]) if (byId(name).value !== this.current[name]) fields[name] = byId(name).value;
    return fields;
  }
  async save() {
    if (this.saving) await this.saving;
    if (!this.current) return;
    const wasEditing = document.activeElement === byId("text");
    if (await this.edit("change", this.#readFields(), "saved", { advance: true }) && wasEditing) this.editText();
  }
  // A field that is left is saved too.
  async saveLeft() {
    if (!this.current || this.isBusy || Object.keys(this.#readFields()).length === 1) return;
    this.saving = this.edit("change", this.#readFields(), "saved", { stay: true });
    await this.saving;
    this.saving = null;
  }
  cancelText() {
    if (!this.current) return;
    this.drafts.delete(this.current.id);
    this.#drawClip(this.current);
    if (this.detail) this.#drawDetail(this.detail);
  }
  accept() { return this.current && this.edit("use", { id: this.current.id }, "saved", { advance: true }); }
  drop() {
    if (!this.current) return null;
    const isDropped = this.current.status === "dropped";
    return this.edit(isDropped ? "use" : "drop", { id: this.current.id }, isDropped ? "saved" : "droppedSaid", { advance: !isDropped });
  }
  merge(side) {
    if (!this.detail || !this.detail[side]) { say(t("noNeighbour"), true); return null; }
    return this.edit("merge", { id: this.current.id, other: this.detail[side] }, "mergedSaid");
  }
  undo(kind = "undo") {
    if (byId(kind).disabled) { say(t("nothingToUndo")); return null; }
    return this.edit(kind, {}, kind === "undo" ? "undoneSaid" : "redoneSaid");
  }
  split() { if (this.current && this.wave.buffer) this.splitForm.open(this.current); }
  editText() {
    const field = byId("text");
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
  // Commands of keys outside of text fields; true where one was found.
  press(key, isShifted) {
    if (this.splitForm.isOpen) return this.splitForm.press(key, isShifted);
    const actions = {
      " ": () => this.wave.toggle(), j: () => this.move(1), arrowdown: () => this.move(1), k: () => this.move(-1), arrowup: () => this.move(-1),
      e: () => this.editText(), enter: () => this.editText(), a: () => this.accept(), d: () => this.drop(), s: () => this.split(),
      m: () => this.merge(isShifted ? "previous" : "next"), u: () => this.undo(isShifted ? "redo" : "undo"), "/": () => byId("search").focus(),
      1: () => this.chooseFilter(0), 2: () => this.chooseFilter(1), 3: () => this.chooseFilter(2), 4: () => this.chooseFilter(3),
      escape: () => { this.wave.selection = null; this.wave.stop(); this.wave.draw(); },
    };
    if (!actions[key]) return false;
    actions[key]();
    return true;
  }
  leave() { this.wave.stop(); }
}
