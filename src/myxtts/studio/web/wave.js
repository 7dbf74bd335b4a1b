// The waveform of one clip on a canvas: playing, cursor, selection, pauses and the place of a cut.
import { audioContext, request } from "./api.js";

const MARGIN_PX = 4;

export class Wave {
  constructor(canvas, onMove) {
    this.canvas = canvas;
    this.onMove = onMove;
    this.buffer = null;
    this.pauses = [];
    this.cursor = 0;
    this.selection = null;
    this.cut = null;
    this.playing = null;
    this.wanted = "";
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }
  get duration() { return this.buffer ? this.buffer.duration : 0; }

  async load(id, pauses) {
    this.clear();
    this.wanted = id;
    const content = await (await request(`api/sound?${new URLSearchParams({ id })}`)).arrayBuffer();
    const buffer = await audioContext().decodeAudioData(content);
    if (this.wanted !== id) return false;
    this.buffer = buffer;
    this.peaks = null;
    this.pauses = pauses;
    this.draw();
    return true;
  }
  clear() {
    this.stop();
    Object.assign(this, { buffer: null, pauses: [], cursor: 0, selection: null, cut: null, wanted: "" });
    this.draw();
  }
  async play() {
    if (!this.buffer) return;
    const context = audioContext();
    const atEnd = this.cursor > this.duration - 0.05;
    const start = this.selection ? this.selection[0] : atEnd ? 0 : this.cursor;
    const end = this.selection ? this.selection[1] : this.duration;
    await context.resume();
    this.stop();
    const source = context.createBufferSource();
    source.buffer = this.buffer;
    source.connect(context.destination);
    source.start(0, start, end - start);
    const playing = { source, began: context.currentTime - start, back: this.selection ? start : 0 };
    source.onended = () => { if (this.playing === playing) { this.playing = null; this.cursor = playing.back; this.draw(); this.onMove(); } };
    this.playing = playing;
    this.#follow();
    this.onMove();
  }
  #follow() {
    if (!this.playing) return;
    this.cursor = Math.min(this.duration, audioContext().currentTime - this.playing.began);
    this.draw();
    requestAnimationFrame(() => this.#follow());
  }
  stop() {
    if (!this.playing) return;
    const { source } = this.playing;
    this.playing = null;
    source.stop();
    this.onMove();
  }
  toggle() {
    if (this.playing) this.stop(); else this.play();
  }

  nearestPause(seconds) {
    const cuts = this.pauses.map((pause) => pause.cut);
    if (!cuts.length) return seconds;
    return cuts.reduce((best, cut) => (Math.abs(cut - seconds) < Math.abs(best - seconds) ? cut : best));
  }
  beginCut() {
    const isChosen = this.cursor > 0.1 && this.cursor < this.duration - 0.1;
    const wanted = isChosen ? this.cursor : this.duration / 2, nearest = this.nearestPause(wanted);
    // The beginning of a selection is meant as it is, unless a pause is right there.
    const isExact = this.selection !== null && Math.abs(nearest - wanted) > 0.25;
    this.stop();
    this.selection = null;
    this.#setCut(isExact ? wanted : nearest);
  }
  moveCut(direction, isFine) {
    if (isFine) { this.#setCut(this.cut + 0.02 * direction); return; }
    const cuts = this.pauses.map((pause) => pause.cut).filter((cut) => direction * (cut - this.cut) > 0.005);
    if (cuts.length) this.#setCut(direction > 0 ? Math.min(...cuts) : Math.max(...cuts));
  }
  endCut() { this.cut = null; this.draw(); }
  #setCut(seconds) {
    this.cut = Math.round(1000 * Math.min(this.duration, Math.max(0, seconds))) / 1000;
    this.draw();
    this.onMove();
  }

  #press(event) {
    if (!this.buffer) return;
    this.canvas.focus({ preventScroll: true });
    const start = this.#place(event);
    this.stop();
    this.selection = null;
    this.cursor = start;
    const move = (later) => {
      const place = this.#place(later);
      this.selection = this.cut === null && Math.abs(place - start) > 0.03 ? [Math.min(start, place), Math.max(start, place)] : null;
      if (this.selection) this.cursor = this.selection[0];
      this.draw();
    };
    const end = (later) => {
      removeEventListener("pointermove", move);
      if (this.cut !== null) this.#setCut(later.shiftKey ? this.#place(later) : this.nearestPause(this.#place(later)));
      this.onMove();
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end, { once: true });
    this.draw();
  }
  #place(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.duration * Math.min(1, Math.max(0, (event.clientX - box.left - MARGIN_PX) / (box.width - 2 * MARGIN_PX)));
  }

  draw() {
    const ratio = devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
    const width = Math.round(box.width * ratio), height = Math.round(box.height * ratio);
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    pen.clearRect(0, 0, width, height);
    if (!this.buffer || !width) return;
    const margin = MARGIN_PX * ratio, inner = width - 2 * margin;
    const at = (seconds) => margin + inner * seconds / this.duration;
    pen.fillStyle = color("--pause");
    for (const pause of this.pauses) pen.fillRect(at(pause.start), 0, at(pause.end) - at(pause.start), height);
    if (this.selection) {
      pen.fillStyle = color("--select");
      pen.fillRect(at(this.selection[0]), 0, at(this.selection[1]) - at(this.selection[0]), height);
    }
    this.#drawSamples(pen, color("--wave"), margin, inner, height);
    this.#drawLine(pen, color("--ink"), at(this.cursor), ratio, height);
    if (this.cut !== null) this.#drawLine(pen, color("--cut"), at(this.cut), 2.5 * ratio, height);
  }
  #drawSamples(pen, color, margin, inner, height) {
    const columns = Math.max(1, Math.floor(inner)), middle = height / 2;
    if (!this.peaks || this.peaks.length !== 2 * columns) this.peaks = findPeaks(this.buffer.getChannelData(0), columns);
    // Soft recordings are drawn larger; their level stands below as a figure.
    const loudest = this.peaks.reduce((most, value) => Math.max(most, Math.abs(value)), 0.01), scale = middle * Math.min(8, 0.95 / loudest);
    pen.fillStyle = color;
    for (let x = 0; x < columns; x++) {
      const low = this.peaks[2 * x], high = this.peaks[2 * x + 1];
      pen.fillRect(margin + x, middle - high * scale, 1, Math.max(1, (high - low) * scale));
    }
  }
  #drawLine(pen, color, x, thickness, height) {
    pen.fillStyle = color;
    pen.fillRect(x - thickness / 2, 0, thickness, height);
  }
}

// The lowest and highest sample of each column; computed once, since the picture is drawn again while it plays.
function findPeaks(samples, columns) {
  const peaks = new Float32Array(2 * columns), step = samples.length / columns;
  for (let x = 0; x < columns; x++) {
    let low = 0, high = 0;
    const stop = Math.min(samples.length, Math.floor((x + 1) * step) + 1);
    for (let place = Math.floor(x * step); place < stop; place++) {
      const value = samples[place];
      if (value < low) low = value; else if (value > high) high = value;
    }
    peaks[2 * x] = low;
    peaks[2 * x + 1] = high;
  }
  return peaks;
}
