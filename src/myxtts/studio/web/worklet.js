// Sends the samples of the microphone to the page, in blocks of about 40 ms.
class Sender extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Float32Array(2048);
    this.filled = 0;
  }
  process([input]) {
    if (!input || !input.length) return true;
    const samples = input[0];
    if (this.filled + samples.length > this.block.length) {
      this.port.postMessage(this.block.slice(0, this.filled));
      this.filled = 0;
    }
    this.block.set(samples, this.filled);
    this.filled += samples.length;
    return true;
  }
}
registerProcessor("sender", Sender);
