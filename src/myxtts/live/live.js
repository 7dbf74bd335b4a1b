// Keeps the page of a run up to date by the events of its server, and sends what the reader asks for.
"use strict";
(() => {
  const words = JSON.parse(document.getElementById("live-words").textContent);
  const find = (selector) => document.querySelector(selector);
  const show = (text) => (find("#status").textContent = text);
  async function send(address, body) {
    const response = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json", "Accept-Language": document.documentElement.lang }, body: JSON.stringify(body) });
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.error ? answer.error.message : words.failed);
    return answer;
  }
  const login = find("#login");
  if (login) {
    login.addEventListener("submit", (event) => {
      event.preventDefault();
      send("login", { key: login.querySelector("input").value }).then(() => location.reload(), (error) => show(error.message));
    });
    return;
  }

  function make(kind, text, more = {}) {
    const element = Object.assign(document.createElement(kind), more);
    if (text) element.textContent = text;
    return element;
  }
  function makePlayer(label, address) {
    const player = make("div", "", { className: "player" });
    player.append(make("span", label), make("audio", "", { controls: true, preload: "none", src: address }));
    return player;
  }
  function makePlot(label, kind, address) {
    const [name, y] = words.plots[kind], caption = `${label}: ${name}`;
    const figure = make("figure"), plot = make("div", "", { className: "plot" });
    plot.append(make("span", y, { className: "y", dir: "auto" }), make("img", "", { src: address, alt: caption }), make("span", words.plotX, { className: "x", dir: "auto" }));
    figure.append(plot, make("figcaption", caption));
    return figure;
  }
  // A sentence is made once; later only the players of new steps are added, so that a sound that plays goes on.
  const sentences = new Map();
  function showSamples(list) {
    find("#samples").hidden = !list.length;
    for (const sentence of list) {
      let known = sentences.get(sentence.name);
      if (!known) {
        const panel = make("div", "", { className: "panel" });
        known = { panel, references: make("div"), steps: make("div", "", { className: "steps" }), pictures: make("div"), labels: new Set() };
        panel.append(make("h3", sentence.heading), make("p", sentence.text, { className: "quote", dir: "auto" }), known.references, known.steps, known.pictures);
        find("#samples .grid").append(panel);
        sentences.set(sentence.name, known);
      }
      if (!known.references.children.length) {
        for (const key of ["recorded", "copy"]) if (sentence[key]) known.references.append(makePlayer(words[key], sentence[key]));
      }
      for (const step of [...sentence.steps].reverse()) {
        if (known.labels.has(step.label) || !step.sound) continue;
        known.labels.add(step.label);
        known.steps.prepend(makePlayer(step.label, step.sound));
      }
      const newest = sentence.steps[0];
      if (known.newest !== newest.label) {
        known.newest = newest.label;
        known.pictures.replaceChildren(...["mel", "alignment"].filter((kind) => newest[kind]).map((kind) => makePlot(newest.label, kind, newest[kind])));
      }
    }
  }
  function showSaid(said) {
    const box = make("div");
    box.append(make("p", said.text, { className: "note", dir: "auto" }), makePlayer([said.voice, said.step == null ? "" : `${words.step} ${MyxttsCharts.write(said.step)}`].filter(Boolean).join(", "), said.url));
    find("#said").prepend(box);
    return box;
  }
  function describe(news) {
    for (const [name, [value, remark]] of Object.entries(news.figures)) {
      const card = find(`#card-${name}`);
      card.querySelector("strong").textContent = value;
      card.querySelector(".remark").textContent = remark;
    }
    const [said, command] = news.verdict.split(": myxtts ");
    find(".verdict").textContent = command ? `${said}: ` : said;
    if (command) find(".verdict").append(make("code", `myxtts ${command}`, { dir: "ltr" }));
    find("#card-state").dataset.state = news.state;
    find("#stop").disabled = news.stopping || !["running", "stalled", "starting"].includes(news.state);
    if (news.stopping) show(words.stopping);
    if (news.samples) showSamples(news.samples);
  }
  function restart(news) {
    for (const chart of Object.values(MyxttsCharts.charts)) {
      for (const curve of chart.spec.curves) [curve.x, curve.y] = [[], []];
    }
    if (find("#said")) {
      find("#said").replaceChildren();
      news.said.forEach(showSaid);
    }
    grow(news.points);
  }
  function grow(points) {
    for (const chart of Object.values(MyxttsCharts.charts)) chart.add(points);
  }
  let isOver = false, numFailures = 0;
  const events = new EventSource(`events${location.search}`);
  events.onmessage = (message) => {
    const news = JSON.parse(message.data);
    if (news.kind === "ended") {
      isOver = true;
      events.close();
      show(words.ended);
      location.reload();
      return;
    }
    if (numFailures) show("");
    numFailures = 0;
    news.kind === "all" ? restart(news) : grow(news.points);
    describe(news);
  };
  events.onerror = () => {
    if (isOver) return;
    numFailures += 1;
    show(numFailures < 5 ? words.lost : words.gone);
  };
  find("#stop").addEventListener("click", () => {
    if (!confirm(words.sure)) return;
    find("#stop").disabled = true;
    send("stop", {}).then(() => show(words.stopping), (error) => show(error.message));
  });
  const form = find("#say");
  async function loadVoices() {
    const found = await (await fetch("voices")).json();
    for (const [name, values] of [["voice", found.voices], ["language", found.languages]]) {
      const select = form.elements[name];
      if (select.length !== values.length) select.replaceChildren(...values.map((value) => new Option(value)));
    }
  }
  if (form) {
    find("#cancel").addEventListener("click", () => send("say/cancel", {}).catch((error) => show(error.message)));
    form.addEventListener("focusin", () => form.elements.voice.length || loadVoices());
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const button = form.querySelector("button"), body = { text: form.querySelector("textarea").value };
      for (const name of ["voice", "language"]) if (form.elements[name].value) body[name] = form.elements[name].value;
      const begun = performance.now(), tick = () => show(words.saying.replace("{seconds}", MyxttsCharts.write(Math.floor((performance.now() - begun) / 1000))));
      const timer = setInterval(tick, 1000);
      button.disabled = true;
      find("#cancel").hidden = false;
      tick();
      try {
        const said = await send("say", body);
        clearInterval(timer);
        show("");
        // Where the browser does not let a page play by itself, the player is there.
        showSaid(said).querySelector("audio").play().catch(() => {});
      } catch (error) {
        clearInterval(timer);
        show(error.message);
      }
      find("#cancel").hidden = true;
      button.disabled = false;
    });
  }
})();
