// The microphone as 16-bit mono WAV at the rate of the device, without the processing of the browser.
const KEY_CLICK_S = 0.08;

export class Microphone {
  constructor(onBlock) {
    this.onBlock = onBlock;
    this.context = null;
    this.blocks = null;
    this.skipped = 0;
    this.noise = null;
  }
  async open() {
    if (this.context) return;
    if (!navigator.mediaDevices) throw new Error("notSecure");
    const audio = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    this.stream = await navigator.mediaDevices.getUserMedia({ audio });
    const context = new AudioContext();
    await context.audioWorklet.addModule("worklet.js");
    const node = new AudioWorkletNode(context, "sender", { numberOfOutputs: 1, channelCount: 1, channelCountMode: "explicit" });
    node.port.onmessage = (event) => this.#take(event.data);
    context.createMediaStreamSource(this.stream).connect(node);
    // Without a way to the output some browsers do not run the node; its output is silent.
    node.connect(context.destination);
    this.context = context;
    await context.resume();
  }
  close() {
    if (!this.context) return;
    for (const track of this.stream.getTracks()) track.stop();
    this.context.close();
    this.context = this.blocks = null;
  }
  get seconds() { return this.blocks ? this.blocks.reduce((sum, block) => sum + block.length, 0) / this.context.sampleRate : 0; }
  #take(block) {
    let peak = 0, power = 0;
    for (const value of block) { peak = Math.max(peak, Math.abs(value)); power += value * value; }
    if (this.noise) this.noise.push(power / block.length);
    // The key that starts a take is heard too.
    if (this.blocks && this.skipped < KEY_CLICK_S * this.context.sampleRate) this.skipped += block.length;
    else if (this.blocks) this.blocks.push(block);
    this.onBlock(peak, Math.sqrt(power / block.length));
  }
  // The level of a second of silence in dB: the median of its blocks, so that a single knock does not count.
  async measureNoise() {
    this.noise = [];
    await new Promise((resolve) => setTimeout(resolve, 1000));
    const powers = this.noise.sort((one, other) => one - other);
    this.noise = null;
    return toDecibels(Math.sqrt(powers[Math.floor(powers.length / 2)] || 0));
  }
  begin() { this.blocks = []; this.skipped = 0; }
  finish() {
    const blocks = this.blocks;
    this.blocks = null;
    return makeWav(blocks, this.context.sampleRate);
  }
}

export const toDecibels = (value) => 20 * Math.log10(Math.max(value, 1e-5));

function makeWav(blocks, rate) {
  const length = blocks.reduce((sum, block) => sum + block.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * length));
  const text = (at, value) => [...value].forEach((letter, index) => view.setUint8(at + index, letter.charCodeAt(0)));
  text(0, "RIFF"); view.setUint32(4, 36 + 2 * length, true); text(8, "WAVEfmt "); view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); view.setUint16(22, 1, true); view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true); view.setUint16(32, 2, true); view.setUint16(34, 16, true);
  text(36, "data"); view.setUint32(40, 2 * length, true);
  let place = 44;
  for (const block of blocks) {
    for (const value of block) {
      view.setInt16(place, Math.round(32767 * Math.max(-1, Math.min(1, value))), true);
      place += 2;
    }
  }
  return new Blob([view], { type: "audio/wav" });
}
