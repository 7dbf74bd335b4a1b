// Line charts of the pages, drawn by uPlot: axis titles, values under the pointer, zoom by dragging, linear and
// logarithmic scale, curves that are switched off by their name in the legend.
"use strict";
const MyxttsCharts = (() => {
  const SMOOTHED_FROM = 60, SMOOTHED_SHARE = 0.03, NUM_COLOURS = 12, HEIGHT = 250, MAX_POINTS = 4000;
  const root = document.documentElement;
  const words = JSON.parse(document.getElementById("chart-words").textContent);
  const numbers = new Intl.NumberFormat(root.lang, { maximumSignificantDigits: 4 });
  const write = (value) => {
    if (value == null) return "–";
    // Persian readers know 1.2e-5 in this form too; the format of Intl for it is unreadable from right to left.
    if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(1);
    return numbers.format(value);
  };
  const readColour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const drawn = [];

  function smooth(values) {
    const half = Math.max(5, Math.floor(values.length * SMOOTHED_SHARE)) >> 1, sums = [0];
    for (const value of values) sums.push(sums[sums.length - 1] + value);
    return values.map((_, place) => {
      const first = Math.max(0, place - half), stop = Math.min(values.length, place + half + 1);
      return (sums[stop] - sums[first]) / (stop - first);
    });
  }
  // One value of a long curve must not squeeze all others into a line.
  function findRange(values) {
    const sorted = values.filter((value) => value != null).sort((a, b) => a - b);
    const lowest = sorted[0], usual = sorted[Math.floor(0.98 * (sorted.length - 1))];
    let highest = sorted[sorted.length - 1];
    if (sorted.length > SMOOTHED_FROM && highest - lowest > 3 * (usual - lowest)) highest = usual;
    const margin = 0.06 * (highest - lowest) || 0.1 * Math.abs(highest) || 1;
    const bottom = lowest - margin;
    return [lowest >= 0 && bottom < 0.25 * (highest - lowest) ? 0 : bottom, highest + margin];
  }
  // Whole decades would squeeze curves that lie between two of them.
  function findLogarithmicRange(values) {
    const [lowest, highest] = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, 0]);
    const margin = Math.max((highest / lowest) ** 0.06, 1.02);
    return [lowest / margin, highest * margin];
  }
  // Ticks of a logarithmic axis: 1, 2 and 5 of each decade, decades alone where there are many, even steps within one.
  function listTicks(low, high) {
    const decades = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) decades.push(10 ** power);
    const leads = decades.length > 4 ? [1] : [1, 2, 5];
    const ticks = decades.flatMap((decade) => leads.map((lead) => lead * decade)).filter((tick) => tick >= low && tick <= high);
    if (ticks.length > 2) return ticks;
    const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((lead) => lead * power).find((size) => size >= rough), even = [];
    for (let place = Math.ceil(low / step); place * step <= high; place++) even.push(Number((place * step).toPrecision(6)));
    return even;
  }

  class Chart {
    constructor(element, spec) {
      this.element = element;
      this.spec = spec;
      this.isLogarithmic = false;
      this.hidden = new Set();
      this.holder = document.createElement("div");
      this.button = document.createElement("button");
      this.button.type = "button";
      this.button.className = "scale";
      this.button.addEventListener("click", () => {
        this.isLogarithmic = !this.isLogarithmic;
        this.draw();
      });
      element.replaceChildren(this.button, this.holder);
      this.draw();
      new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(element);
      drawn.push(this);
    }
    size() {
      return { width: Math.max(220, this.element.clientWidth), height: HEIGHT };
    }
    // Each curve that is noisy and long has two lines: its entries, faint, and their moving average.
    list() {
      const lines = [];
      this.spec.curves.forEach((curve, number) => {
        if (!curve.x.length) return;
        const isSmoothed = curve.noisy && curve.x.length >= SMOOTHED_FROM;
        if (isSmoothed) lines.push({ curve, number, values: curve.y, isFaint: true });
        lines.push({ curve, number, values: isSmoothed ? smooth(curve.y) : curve.y, isFaint: false });
      });
      return lines;
    }
    tables(lines) {
      const clean = (value) => (this.isLogarithmic && value <= 0 ? null : value);
      return uPlot.join(lines.map((line) => [line.curve.x.slice(), line.values.map(clean)]), lines.map((line) => line.values.map(() => 2)));
    }
    draw() {
      this.button.textContent = this.isLogarithmic ? words.linear : words.logarithmic;
      this.button.title = words.scale;
      const lines = this.list();
      const zoom = this.plot && this.findZoom();
      if (this.plot) this.plot.destroy();
      this.plot = null;
      this.element.hidden = !lines.length;
      if (!lines.length) return;
      this.shape = lines.map((line) => `${line.number}${line.isFaint}`).join();
      const data = this.tables(lines);
      const axis = { stroke: () => readColour("--soft"), font: "11px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 20 };
      const rule = { stroke: () => readColour("--line"), width: 1 };
      this.plot = new uPlot({
        ...this.size(),
        cursor: { drag: { x: true, y: false }, points: { size: 7 } },
        scales: { x: { time: false }, y: { distr: this.isLogarithmic ? 3 : 1, range: (plot, low, high) => this.range(plot, low, high) } },
        axes: [
          { ...axis, label: this.spec.x, grid: { show: false }, ticks: rule, size: 34, values: (_, ticks) => ticks.map(write) },
          { ...axis, label: this.spec.unit, grid: rule, ticks: { show: false }, size: 56, ...this.tickLogarithmically(), values: (_, ticks) => ticks.map((tick) => (tick == null ? "" : write(tick))) },
        ],
        series: [{ label: this.spec.x, value: (_, value) => write(value) }, ...lines.map((line) => this.describe(line))],
        legend: { markers: { width: 0, fill: (plot, index) => plot.series[index].stroke(plot, index) } },
        hooks: { setSeries: [(plot, index) => this.follow(plot, index, lines)], ready: [(plot) => this.mark(plot)] },
      }, data, this.holder);
      if (zoom) this.plot.setScale("x", zoom);
    }
    tickLogarithmically() {
      return this.isLogarithmic ? { splits: (_, __, low, high) => listTicks(low, high), filter: (_, ticks) => ticks } : {};
    }
    // What is seen of the x axis, null where that is everything.
    findZoom() {
      const xs = this.plot.data[0], { min, max } = this.plot.scales.x;
      return min > xs[0] || max < xs[xs.length - 1] ? { min, max } : null;
    }
    describe(line) {
      const colour = () => readColour(`--c${line.number % NUM_COLOURS}`);
      return {
        label: line.curve.label,
        class: line.isFaint ? "faint" : "line",
        show: !this.hidden.has(line.number),
        stroke: line.isFaint ? () => `${colour()}55` : colour,
        width: line.isFaint ? 1 : 1.9,
        dash: line.number >= NUM_COLOURS ? [6, 4] : undefined,
        spanGaps: true,
        points: { show: line.curve.x.length === 1, size: 6 },
        value: (_, value, __, index) => this.write(index == null ? line.values[line.values.length - 1] : value),
      };
    }
    // While zoomed in, the range is that of what is seen: `idxs` are its places, which uPlot knows before its scales.
    range(plot, low, high) {
      if (low == null) return this.isLogarithmic ? [0.1, 1] : [0, 1];
      const [first, last] = plot.series[0].idxs, seen = [];
      for (let line = 1; line < plot.series.length; line++) {
        if (!plot.series[line].show) continue;
        seen.push(...plot.data[line].slice(first, last + 1).filter((value) => value != null));
      }
      if (!seen.length) return [low, high];
      return this.isLogarithmic ? findLogarithmicRange(seen) : findRange(seen);
    }
    follow(plot, index, lines) {
      if (index == null || !lines[index - 1]) return;
      const { number } = lines[index - 1], { show } = plot.series[index];
      show ? this.hidden.delete(number) : this.hidden.add(number);
      lines.forEach((line, place) => {
        if (line.number === number && plot.series[place + 1].show !== show) plot.setSeries(place + 1, { show });
      });
    }
    mark(plot) {
      plot.over.title = words.hint;
    }
    // Per cent stand beside the number; other units are the title of the axis.
    write(value) {
      const sign = { "%": "\u00a0%", "٪": "٪" }[this.spec.unit] || "";
      return write(value) + (value == null ? "" : sign);
    }
    // New points of curves by their keys: {key: [[x, y], …]}. What was zoomed in stays zoomed in.
    add(points) {
      let isChanged = false;
      for (const curve of this.spec.curves) {
        for (const [x, y] of points[curve.key] || []) {
          curve.x.push(x);
          curve.y.push(y);
          isChanged = true;
        }
        while (curve.x.length > MAX_POINTS) {
          curve.x = curve.x.filter((_, place) => place % 2);
          curve.y = curve.y.filter((_, place) => place % 2);
        }
      }
      if (isChanged) this.refresh();
    }
    refresh() {
      const lines = this.list();
      if (!this.plot || lines.map((line) => `${line.number}${line.isFaint}`).join() !== this.shape) return this.draw();
      const isZoomed = this.findZoom() !== null;
      lines.forEach((line, place) => (this.plot.series[place + 1].value = this.describe(line).value));
      this.plot.setData(this.tables(lines), !isZoomed);
      if (isZoomed) this.plot.redraw(true, true);
    }
  }

  const charts = {};
  for (const element of document.querySelectorAll(".chart")) {
    charts[element.id] = new Chart(element, JSON.parse(element.querySelector("script").textContent));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach((chart) => chart.plot && chart.plot.redraw(false, true)));
  return { charts, drawn, write };
})();
