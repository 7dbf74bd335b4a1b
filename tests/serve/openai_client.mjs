// Asks a server for speech as programs with OpenAI's npm package do; prints one JSON object.
// node openai_client.mjs BASE_URL API_KEY, with the folder of the package in NODE_PATH.
import { createRequire } from "node:module";
const OpenAI = createRequire(import.meta.url)("openai");
const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const input = "The quick fox. It jumps over the dog! And again.";
const results = { formats: {}, events: [] };
for (const response_format of ["mp3", "opus", "flac", "wav", "pcm"]) {
  const answer = await client.audio.speech.create({ model: "tts-1", voice: "anna", input, response_format });
  results.formats[response_format] = Buffer.from(await answer.arrayBuffer()).toString("base64");
}
const parts = [];
const whole = await client.audio.speech.create({ model: "tts-1", voice: "anna", input, response_format: "pcm" });
for await (const part of whole.body) parts.push(part.length);
results.num_parts = parts.length;
results.num_streamed = parts.reduce((sum, length) => sum + length, 0);
const stream = await client.audio.speech.create({
  model: "gpt-4o-mini-tts", voice: { id: "omid" }, input: "به نام خدا. چه خوش.", response_format: "pcm", stream_format: "sse",
});
const text = await stream.text();
results.events = text.split("\n\n").filter(Boolean).map((event) => JSON.parse(event.replace(/^data: /, "")).type);
try {
  await client.audio.speech.create({ model: "tts-1", voice: "../../etc/passwd", input });
} catch (error) {
  results.error = { status: error.status, type: error.type, name: error.constructor.name };
}
results.models = (await client.models.list()).data.map((model) => model.id);
console.log(JSON.stringify(results));
