
"use strict";
// The charts in the reader's time zone; choosing a time in them, by dragging or by two sliders; what happened then, and
// the charts of that time alone.
const DIGIT = 8; // at most the width of a character of a label
// Each text that has a time is in `data-t`, in milliseconds: labels below the charts, titles of columns, first cells.
const translate = (series, section) => {
  const last = series.b + (series.s.at(-1)[0] + 1) * series.w;
  for (const svg of section.querySelectorAll("figure svg")) tellTicks(svg, series.c);
  for (const each of section.querySelectorAll("title[data-t], td[data-t]")) {
    const [said] = each.textContent.match(/: .*/s) ?? [""];
    each.textContent = inZone.moment(Number(each.dataset.t), series.c) + said;
  }
  section.querySelector("#zone").textContent = inZone.words(series.b, last);
};
const tellTicks = (svg, width) => {
  let before = null;
  for (const text of svg.querySelectorAll("text[data-t]")) {
    const time = Number(text.dataset.t), label = inZone.moment(time, width, before), edge = svg.viewBox.baseVal.width;
    text.textContent = label;
    if (Number(text.getAttribute("x")) + label.length * DIGIT > edge) { // else it would reach beyond the edge
      text.setAttribute("x", edge);
      text.setAttribute("text-anchor", "end");
    }
    before = time;
  }
};

let chosenTime = null; // what is chosen and what is shown, in milliseconds: it stays when live.js replaces the content
let keepAddress = null; // writes the address of the page, with the chosen time
let restoreTime = null; // shows the chosen time again
const presentTime = (series) => {
  const one = (selector, within = document) => within.querySelector(selector);
  const every = (selector, within = document) => [...within.querySelectorAll(selector)];
  const section = one("#time")?.parentElement;
  if (!series || !section) return;
  translate(series, section);
  if (series.s.length < 2) return;

  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 960, HEIGHT = 132, LEFT = 64, TOP = 10, BOTTOM = 22, COLUMNS = 96, TICKS = 6, WORST = 5, STEPS = 200;
  const PLOT = HEIGHT - TOP - BOTTOM;
  const grouped = new Intl.NumberFormat("en").format;
  const panel = one(".range", section), from = one("#from"), to = one("#to");
  const figures = every("figure", section).filter((figure) => one("svg", figure));
  const whole = figures.map((figure) => one("svg", figure));
  const number = series.s.at(-1)[0] + 1; // of spans, with those that are empty
  let first = 0, last = number, shownFrom = 0, shownTo = number; // spans: what is chosen, and what the charts show

  // Numbers

  const within = (begin, end) => series.s.filter(([at]) => at >= begin && at < end);
  const sum = (counts) => Object.values(counts).reduce((total, each) => total + each, 0);
  const add = (total, counts) => {
    for (const [name, count] of Object.entries(counts)) total[name] = (total[name] ?? 0) + count;
  };
  const binsOf = (rows) => {
    const bins = {};
    for (const [, , , , pairs] of rows) for (let i = 0; i < pairs.length; i += 2) bins[pairs[i]] = (bins[pairs[i]] ?? 0) + pairs[i + 1];
    return bins;
  };
  const microseconds = (bin) => {
    const exponent = Math.max(0, Math.floor(bin / 4) - 1);
    return (bin - 4 * exponent + 0.5) * 2 ** exponent - (exponent ? 0 : 0.5);
  };
  const quantile = (bins, part) => {
    const total = sum(bins);
    let seen = 0;
    for (const bin of Object.keys(bins).map(Number).sort((a, b) => a - b)) {
      seen += bins[bin];
      if (seen >= part * total) return microseconds(bin);
    }
    return null;
  };
  const duration = (taken) => {
    const seconds = taken / 1e6;
    if (seconds >= 60) return `${grouped(Math.floor(Math.round(seconds) / 60))} min ${Math.round(seconds) % 60} s`;
    return seconds >= 1 ? `${Number(seconds.toPrecision(2))} s` : `${Number((seconds * 1000).toPrecision(2))} ms`;
  };
  const timeOf = (span) => series.b + span * series.w;
  const UNITS = [["day", 864e5], ["hour", 36e5], ["minute", 6e4], ["second", 1e3], ["millisecond", 1]];
  const widthOf = (milliseconds) => {
    const [name, unit] = UNITS.find(([, each]) => milliseconds >= each && milliseconds * 100 % each === 0);
    return counted(milliseconds / unit, name);
  };
  const counted = (count, name) => `${grouped(count)} ${name}${count === 1 ? "" : "s"}`;

  // What happened in the chosen time

  const tell = () => {
    const rows = within(first, last), failed = {}, warned = {};
    for (const [, , broken, warnings] of rows) { add(failed, broken); add(warned, warnings); }
    const bins = binsOf(rows), messages = rows.reduce((total, row) => total + row[1], 0);
    const worst = Object.entries(failed).sort((a, b) => b[1] - a[1]).slice(0, WORST);
    const parts = [`${inZone.range(timeOf(first), timeOf(last), series.w)}: ${counted(messages, "message")}, ${counted(sum(failed), "failed assertion")}, ${counted(sum(warned), "warning")}`];
    if (sum(bins)) parts.push(["median", "95 %", "99 %"].map((name, index) => `${name} ${duration(quantile(bins, [0.5, 0.95, 0.99][index]))}`).join(", "));
    if (worst.length) parts.push(`failed most: ${worst.map(([name, count]) => `${name} (${grouped(count)})`).join(", ")}`);
    one("#within").textContent = first === 0 && last === number ? "" : `${parts.join("; ")}.`;
  };

  // The charts of a part of the time

  const make = (name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const KINDS = [
    (rows) => [["messages", 0, rows.reduce((total, row) => total + row[1], 0)]],
    (rows) => {
      const [failed, warned] = [2, 3].map((at) => rows.reduce((total, row) => total + sum(row[at]), 0));
      return [["failed", 0, failed], ["warning", failed, failed + warned]].filter(([, low, high]) => high > low);
    },
    (rows) => {
      const bins = binsOf(rows);
      if (!sum(bins)) return [];
      const [median, slow, slowest] = [0.5, 0.95, 0.99].map((part) => quantile(bins, part));
      return [["slow", median, slow], ["slowest", slowest, slowest], ["median", median, median]];
    },
  ];
  const draw = (kind) => {
    const step = Math.ceil((shownTo - shownFrom) / COLUMNS), marks = [];
    for (let at = shownFrom, column = 0; at < shownTo; at += step, column++) {
      for (const mark of KINDS[kind](within(at, Math.min(at + step, shownTo)))) if (mark[2]) marks.push([column, at, ...mark]);
    }
    const columns = Math.ceil((shownTo - shownFrom) / step), pitch = (WIDTH - LEFT) / columns;
    const top = Math.max(0, ...marks.map((mark) => mark[4])), y = (value) => TOP + PLOT - (top ? PLOT * value / top : 0);
    const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
    for (const part of top ? [0, 0.5, 1] : [0]) {
      svg.append(make("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(part * top), y2: y(part * top) }));
      const text = part && kind === 2 ? duration(part * top) : grouped(Math.round(part * top));
      if (!(part === 0.5 && top < 2)) svg.append(make("text", { class: "scale", x: LEFT - 8, y: y(part * top), dy: "0.32em" }, text));
    }
    for (const [column, , name, low, high] of marks) {
      const least = low === high ? 2 : 1, upper = low === high ? y(high) - 1 : Math.min(y(high), y(low) - least);
      svg.append(make("rect", { class: name, x: LEFT + column * pitch + pitch * 0.1, width: pitch * 0.8, y: upper, height: Math.max(least, y(low) - y(high)) }));
    }
    for (const [time, text] of series.m) {
      const x = LEFT + (time - timeOf(shownFrom)) / (step * series.w) * pitch;
      if (x < LEFT || x > WIDTH) continue;
      const line = make("line", { class: "turn", x1: x, x2: x, y1: 0, y2: y(0) });
      line.append(make("title", {}, text));
      svg.append(line);
    }
    for (let column = 0; column < columns; column += Math.max(1, Math.ceil(columns / TICKS))) {
      const x = LEFT + column * pitch;
      svg.append(make("line", { class: "tick", x1: x, x2: x, y1: y(0), y2: HEIGHT - BOTTOM + 4 }));
      svg.append(make("text", { class: "time", x, y: HEIGHT - 5, "data-t": timeOf(shownFrom + column * step) }));
    }
    tellTicks(svg, series.w);
    return svg;
  };
  const show = () => {
    const isWhole = shownFrom === 0 && shownTo === number;
    figures.forEach((figure, index) => one("svg", figure).replaceWith(isWhole ? whole[index] : draw(index)));
    one("#whole").hidden = isWhole;
    const step = Math.ceil((shownTo - shownFrom) / COLUMNS) * series.w;
    one("#scale").textContent = isWhole ? saidOfWhole : `For the chosen time. A column is ${widthOf(step)}`;
    choose(shownFrom, shownTo);
  };

  // Choosing

  const saidOfWhole = one("#scale").textContent;
  const PITCH = () => (WIDTH - LEFT) / (shownTo - shownFrom);
  const choose = (begin, end) => {
    [first, last] = [Math.max(shownFrom, Math.min(begin, shownTo - 1)), Math.min(shownTo, Math.max(end, begin + 1))];
    [from.value, to.value] = [first, last];
    for (const figure of figures) {
      const svg = one("svg", figure);
      one(".brush", svg)?.remove();
      if (first === shownFrom && last === shownTo) continue;
      svg.append(make("rect", { class: "brush", x: LEFT + (first - shownFrom) * PITCH(), width: (last - first) * PITCH(), y: 0, height: TOP + PLOT }));
    }
    const timesOf = (...spans) => spans.map(timeOf), isZoomed = shownFrom > 0 || shownTo < number;
    chosenTime = isZoomed || first > 0 || last < number ? { chosen: timesOf(first, last), shown: isZoomed && timesOf(shownFrom, shownTo) } : null;
    tell();
    tellEnds();
  };
  const tellEnds = () => { // for those who hear the sliders
    from.setAttribute("aria-valuetext", inZone.told(timeOf(first)));
    to.setAttribute("aria-valuetext", inZone.told(timeOf(last)));
  };
  const spanAt = (event, svg) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * WIDTH;
    return shownFrom + Math.max(0, Math.min(shownTo - shownFrom - 1, Math.floor((x - LEFT) / PITCH())));
  };
  for (const figure of figures) {
    figure.classList.add("brushed");
    let begun = null;
    figure.addEventListener("pointerdown", (event) => {
      const svg = event.target.closest("svg");
      if (!svg || event.button) return;
      begun = spanAt(event, svg);
      figure.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    figure.addEventListener("pointermove", (event) => {
      if (begun === null) return;
      const now = spanAt(event, one("svg", figure));
      choose(Math.min(begun, now), Math.max(begun, now) + 1);
    });
    figure.addEventListener("pointerup", (event) => {
      if (begun !== null && spanAt(event, one("svg", figure)) === begun) choose(shownFrom, shownTo); // a click
      begun = null;
      keepAddress?.();
    });
  }
  for (const slider of [from, to]) {
    slider.max = number;
    slider.step = Math.ceil(number / STEPS);
    slider.addEventListener("input", () => {
      const [begin, end] = [Number(from.value), Number(to.value)];
      slider === from ? choose(Math.min(begin, last - 1), last) : choose(first, Math.max(end, first + 1));
    });
    slider.addEventListener("change", () => keepAddress?.());
  }
  one("#zoom").addEventListener("click", () => { [shownFrom, shownTo] = [first, last]; show(); keepAddress?.(); });
  one("#whole").addEventListener("click", () => { [shownFrom, shownTo] = [0, number]; show(); keepAddress?.(); });
  to.value = number;
  tellEnds();
  panel.hidden = false;
  restoreTime = () => {
    const { chosen, shown } = chosenTime ?? {}, spansOf = (times) => times.map((time) => Math.round((time - series.b) / series.w));
    const [begin, end] = shown ? spansOf(shown) : [0, number];
    shownFrom = Math.max(0, Math.min(begin, number - 1));
    shownTo = Math.max(shownFrom + 1, Math.min(end, number));
    show();
    if (chosen) choose(...spansOf(chosen));
  };
  if (chosenTime) restoreTime();
};

// The start of the page, and of each content that live.js puts in its place

let replaced = new AbortController();
const presentAll = (content) => {
  const data = JSON.parse(content);
  present(data, replaced.signal);
  presentTime(data.time);
};
presentAll(document.querySelector("#data").textContent);
addEventListener("report", (event) => {
  replaced.abort();
  replaced = new AbortController();
  presentAll(event.detail);
});
