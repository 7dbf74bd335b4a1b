// Recording of sentences: one prompt after the other, each take stored at once.
import { audioContext, byId, currentLang, describeCorpus, getJson, number, postJson, recall, remember, request, say, seen, t } from "./api.js";
import { Microphone, toDecibels } from "./microphone.js";

const METER_FLOOR_DB = -60, CLIPPED = 0.985;

export class RecordView {
  constructor() {
    this.prompts = [];
    this.place = 0;
    this.state = "idle";
    this.unsent = null;
    this.speaker = sessionStorage.getItem("myxtts-speaker") || "";
    this.microphone = new Microphone((peak, level) => this.#showLevel(peak, level));
    this.held = { peak: 0, until: 0 };
    const actions = {
      take: () => this.toggle(), "take-play": () => this.play(), "take-again": () => this.start(), "take-skip": () => this.skip(),
      "take-previous": () => this.move(-1), "take-next": () => this.next(), measure: () => this.measure(), "change-speaker": () => this.askWho(),
    };
    for (const [id, action] of Object.entries(actions)) byId(id).addEventListener("click", action);
    byId("prompt-language").addEventListener("change", () => this.load(byId("prompt-language").value));
  }
  get prompt() { return this.prompts[this.place] || null; }

  async open() {
    await this.load(recall("promptLanguage", currentLang()));
    if (!this.prompts.length) return;
    // A name of another corpus, from the same session of the browser, is not one of this corpus.
    if (!this.speakers.includes(this.speaker)) await this.askWho();
    else await this.openMicrophone();
  }
  async load(language) {
    const answer = await getJson("api/prompts", { language });
    describeCorpus(answer);
    Object.assign(this, { prompts: answer.prompts, speakers: answer.speakers, language: answer.language, maxSeconds: answer.max_s, noiseLimit: answer.noise_db });
    remember({ promptLanguage: answer.language });
    byId("prompt-language").replaceChildren(...answer.languages.map((code) => new Option(nameLanguage(code), code, false, code === answer.language)));
    byId("prompt-language").hidden = answer.languages.length < 2;
    byId("speakers").replaceChildren(...answer.speakers.map((name) => new Option(name)));
    if (!byId("consent-speaker").value) byId("consent-speaker").value = answer.speakers.at(-1) || "";
    const kept = this.prompts.findIndex((one) => one.text === recall("prompt", ""));
    const open = this.prompts.findIndex((one) => one.clip === null);
    this.place = kept >= 0 ? kept : Math.max(0, open);
    this.draw();
  }
  // Who speaks and agrees: asked once in a session of the browser.
  async askWho() {
    const dialog = byId("consent");
    if (!byId("consent-note").value) byId("consent-note").value = t("consentDefault");
    dialog.returnValue = "";
    dialog.showModal();
    await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
    if (dialog.returnValue !== "begin") return;
    const speaker = byId("consent-speaker").value.trim().replace(/\s+/g, " ");
    try {
      describeCorpus(await postJson("api/consent", { speaker, note: byId("consent-note").value }));
    } catch (error) { say(error.message, true); return; }
    this.speaker = speaker;
    sessionStorage.setItem("myxtts-speaker", speaker);
    this.draw();
    await this.openMicrophone();
  }
  async openMicrophone() {
    try {
      await this.microphone.open();
    } catch (error) {
      this.tell(error.message === "notSecure" ? t("notSecure") : t("noMicrophone", { reason: error.message }));
      return;
    }
    await this.measure();
  }
  async measure() {
    if (!this.microphone.context || this.state !== "idle") return;
    this.state = "measuring";
    this.tell(t("beSilent"));
    const level = await this.microphone.measureNoise();
    this.state = "idle";
    const isNoisy = level > this.noiseLimit;
    this.warn(isNoisy ? [t("roomNoisy", { level: number(level) })] : []);
    this.tell(`${t("ready")} ${isNoisy ? "" : t("roomQuiet", { level: number(level) })}`);
  }

  async toggle() {
    if (this.state === "recording") await this.stop(); else await this.start();
  }
  async start() {
    if (this.state === "recording" || this.state === "storing" || !this.prompt) return;
    if (!this.speaker) { await this.askWho(); return; }
    if (!this.microphone.context) { await this.openMicrophone(); return; }
    if (this.state === "measuring") return;
    this.state = "recording";
    this.unsent = null;
    this.clippedAt = 0;
    this.warn([]);
    byId("recorder").classList.add("is-recording");
    byId("take-text").textContent = t("stopTake");
    this.microphone.begin();
    this.tell(t("recording", { seconds: number(0, 1) }));
  }
  async stop() {
    if (this.state !== "recording") return;
    byId("recorder").classList.remove("is-recording");
    byId("take-text").textContent = t("startTake");
    const name = crypto.randomUUID ? crypto.randomUUID() : `take-${Date.now()}-${Math.floor(1e9 * Math.random())}`;
    this.unsent = { name, prompt: this.prompt, sound: this.microphone.finish() };
    await this.send();
  }
  // The name of the take stays the same when it is sent again, so that the studio stores it once.
  async send() {
    const { name, prompt, sound } = this.unsent;
    this.state = "storing";
    this.tell(t("storing"));
    try {
      const query = new URLSearchParams({ take: name, prompt: prompt.text, speaker: this.speaker, language: this.language });
      const answer = await (await request(`api/take?${query}`, { method: "POST", headers: { "Content-Type": "audio/wav" }, body: sound })).json();
      this.unsent = null;
      prompt.clip = answer.clip.id;
      describeCorpus(answer);
      this.draw();
      this.tell(t("stored", { seconds: number(answer.seconds, 1) }));
      this.warn(answer.warnings.map((key) => t(key)));
    } catch (error) {
      // A refused take is of no use a second time; one that did not arrive in time is.
      if ([400, 413, 415].includes(error.status)) { this.unsent = null; this.tell(error.message); this.warn([error.message]); }
      else this.tell(t("notStored", { reason: error.message }));
    } finally {
      this.state = "idle";
    }
  }
  async play() {
    if (!this.prompt || !this.prompt.clip) return;
    const content = await (await request(`api/sound?${new URLSearchParams({ id: this.prompt.clip })}`)).arrayBuffer();
    const context = audioContext(), source = context.createBufferSource();
    if (this.source) this.source.stop();
    source.buffer = await context.decodeAudioData(content);
    source.connect(context.destination);
    source.start();
    this.source = source;
  }
  async skip() {
    if (!this.prompt || this.state !== "idle") return;
    if (this.prompt.clip === null && !await this.#edit({ kind: "skip", prompt: this.prompt.text })) return;
    if (this.prompt.clip === null) this.prompt.clip = "";
    this.next();
  }
  async undo(kind = "undo") {
    if (byId(kind).disabled || this.state !== "idle") { say(t("nothingToUndo")); return; }
    if (!await this.#edit({ kind })) return;
    await this.load(this.language);
    say(t(kind === "undo" ? "undoneSaid" : "redoneSaid"));
  }
  async #edit(fields) {
    try {
      describeCorpus(await postJson("api/edit", { revision: seen.revision, ...fields }));
      return true;
    } catch (error) {
      if (error.status === 409) await this.load(this.language);
      say(error.message, true);
      return false;
    }
  }
  next() {
    if (this.state === "recording") return this.stop();
    if (this.unsent) return this.send();
    const rest = [...this.prompts.keys()].filter((place) => this.prompts[place].clip === null);
    const after = rest.find((place) => place > this.place);
    if (after === undefined && rest.length === 0) { this.move(1); this.tell(t("allRecorded")); return null; }
    return this.goTo(after === undefined ? rest[0] : after);
  }
  move(step) { if (this.state === "idle") this.goTo(this.place + step); }
  goTo(place) {
    if (place < 0 || place >= this.prompts.length) return;
    this.place = place;
    this.warn([]);
    this.draw();
  }

  draw() {
    const one = this.prompt;
    if (this.state !== "recording") byId("take-text").textContent = t("startTake");
    byId("prompt").textContent = one ? one.text : t("noPrompts");
    byId("prompt").lang = one ? this.language : "";
    byId("prompt-place").textContent = one
      ? t("sentence", { place: number(this.place + 1), total: number(this.prompts.length), recorded: number(this.prompts.filter((other) => other.clip).length) }) : "";
    byId("prompt-speaker").textContent = this.speaker;
    byId("change-speaker").hidden = !this.speaker;
    for (const id of ["take", "take-skip", "take-next", "take-previous"]) byId(id).disabled = !one;
    for (const id of ["take-play", "take-again"]) byId(id).disabled = !one || !one.clip;
    if (!one) return;
    remember({ prompt: one.text });
    if (this.state === "idle") this.tell(one.clip ? t("isRecorded") : one.clip === "" ? t("isSkipped") : this.microphone.context ? t("ready") : "");
  }
  tell(text) { byId("take-state").textContent = text; }
  warn(texts) {
    byId("take-warnings").hidden = !texts.length;
    byId("take-warnings").replaceChildren(...texts.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  }
  #showLevel(peak, level) {
    const now = performance.now(), meter = byId("meter"), share = (value) => Math.max(0, 1 - toDecibels(value) / METER_FLOOR_DB);
    if (peak >= this.held.peak || now > this.held.until) this.held = { peak, until: now + 1000 };
    meter.firstElementChild.style.width = `${100 * share(level)}%`;
    meter.firstElementChild.style.setProperty("--full", `${meter.clientWidth}px`);
    meter.lastElementChild.style.left = `calc(${100 * share(this.held.peak)}% - 2px)`;
    meter.setAttribute("aria-valuenow", Math.round(toDecibels(level)));
    meter.classList.toggle("clipped", this.held.peak >= CLIPPED);
    if (this.state !== "recording") return;
    if (peak >= CLIPPED && !this.clippedAt) { this.clippedAt = now; this.warn([t("takeClipped")]); }
    this.tell(t("recording", { seconds: number(this.microphone.seconds, 1) }));
    if (this.microphone.seconds > this.maxSeconds - 0.5) this.stop();
  }
  press(key, isShifted) {
    const actions = {
      u: () => this.undo(isShifted ? "redo" : "undo"), " ": () => this.toggle(), p: () => this.play(), r: () => this.start(), s: () => this.skip(), enter: () => this.next(), j: () => this.move(1),
      arrowdown: () => this.move(1), arrowright: () => this.move(1), k: () => this.move(-1), arrowup: () => this.move(-1), arrowleft: () => this.move(-1),
    };
    if (!actions[key]) return false;
    actions[key]();
    return true;
  }
  redraw() { this.draw(); }
  leave() {
    if (this.state === "recording") this.stop();
    this.microphone.close();
  }
}

function nameLanguage(code) {
  return new Intl.DisplayNames([currentLang()], { type: "language" }).of(code);
}
