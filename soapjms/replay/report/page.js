"use strict";
// Filters, sorts and opens the content of the page. All data of a log is inserted as text, never as markup.
// Listeners of the document and the window end with `signal`: live.js replaces the content, which is then shown anew.
const present = (data, signal) => {
  const one = (selector, within = document) => within.querySelector(selector);
  const every = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (name, kind, text) => {
    const element = document.createElement(name);
    if (kind) element.className = kind;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const grouped = new Intl.NumberFormat("en").format;
  const LISTED = 50;
  const WAIT = 120; // milliseconds after a key before the search runs

  const table = one("#causes");
  const lines = table ? every("tr.cause", table) : [];
  const query = one("#query");
  const low = (text) => text.toLowerCase();
  const places = data.places.map(low);
  const stacks = data.stacks.map(low);
  const stackName = (stack) => data.names[stack] ?? stack;
  const nodes = data.nodes;
  const PLACE = 0, STACK = 1, NODE = 2, WHO = 3; // of a party
  const partyOf = (number) => data.parties.at(number); // that of all others is the last one
  const causes = data.causes.map((cause) => {
    const ids = low(cause.s.map((each) => [each.e, each.i].join(" ")).join(" "));
    const said = cause.s.map((each) => [each.r, each.q].join(" ")).join(" ");
    return {
      n: cause.n, w: cause.w, a: low([cause.a, ...Object.keys(cause.f), ...Object.keys(cause.b)].join(" ")), s: low(cause.v), l: low(cause.l), c: low(cause.c.join(" ")), m: ids,
      text: low([cause.a, cause.t, cause.r, said, cause.c.join(" ")].join(" ")) + " " + ids,
    };
  });

  // The search language

  const FIELDS = "asqpnlcm";
  const parse = (text) => {
    const terms = [], problems = [];
    for (const [, minus, field, quoted, plain] of text.matchAll(/(-?)(?:([a-z]+):)?(?:"([^"]*)"?|(\S+))/gi)) {
      const name = field ? low(field) : "";
      const value = low(quoted ?? plain);
      if (name.length === 1 && FIELDS.includes(name)) {
        const values = (quoted === undefined ? value.split(",") : [value]).filter(Boolean);
        if (values.length) terms.push({ not: minus === "-", field: name, values });
      } else if (name.length === 1) {
        problems.push(`${name}: is not a field; fields are ${[...FIELDS].map((each) => each + ":").join(" ")}`);
      } else {
        terms.push({ not: minus === "-", field: "", values: [name ? `${name}:${value}` : value] });
      }
    }
    return { terms, problems };
  };
  const fits = (term, text) => term.values.some((value) => (term.field === "s" ? text.startsWith(value) : text.includes(value)));
  const holds = (term, text) => fits(term, text) !== term.not;
  const isWhere = (term) => "qpn".includes(term.field || " ");

  // The places and stacks that a term matches are computed once, not for each cause.
  const judge = (terms) => {
    const where = terms.filter(isWhere), own = terms.filter((term) => !isWhere(term));
    const fitting = (field, names) => names.map((name) => where.every((term) => term.field !== field || holds(term, name)));
    const place = fitting("q", places), stack = fitting("p", stacks), node = fitting("n", nodes);
    const party = data.parties.map((each) => place[each[PLACE]] && stack[each[STACK]] && node[each[NODE]]);
    const words = own.filter((term) => !term.field).map((term) => data.parties.map((each) => term.values.some((value) => low(each[WHO]).includes(value))));
    const found = { counts: [], where: where.length ? [] : null, places: new Map(), stacks: new Map(), ids: new Set() };
    causes.forEach((cause, index) => {
      let word = 0;
      const kept = own.every((term) => {
        if (term.field) return holds(term, cause[term.field]);
        const at = words[word++];
        const seen = cause.text.includes(term.values[0]) || hits(cause.w, at);
        return seen !== term.not;
      });
      found.counts.push(kept ? count(cause, where.length > 0, party, found, data.causes[index]) : 0);
    });
    return found;
  };
  const hits = (where, at) => {
    for (let i = 0; i < where.length; i += 2) if (at.at(where[i])) return true;
    return false;
  };
  const count = (cause, some, party, found, said) => {
    let sum = 0;
    const at = some ? found.where[found.counts.length] = [] : null;
    for (let i = 0; i < cause.w.length; i += 2) {
      const [by, number] = [cause.w[i], cause.w[i + 1]];
      if (some && !party.at(by)) continue;
      const each = partyOf(by);
      sum += number;
      at?.push(each);
      add(found.places, each[PLACE], said.v, number);
      add(found.stacks, data.stacks[each[STACK]], said.v, number);
    }
    if (sum) for (const id of idsOf(said)) found.ids.add(id.replace("/answer", ""));
    return sum;
  };
  // The assertions that a cause tells of: its own, those broken by the same mistake, those that lack the same input.
  const idsOf = (said) => [said.a, ...Object.keys(said.b), ...(said.v === "missingInput" ? Object.keys(said.f) : [])];
  const add = (map, key, verdict, number) => {
    const seen = map.get(key) ?? {};
    seen[verdict] = (seen[verdict] ?? 0) + number;
    map.set(key, seen);
  };

  // Showing the matches

  let shown = LISTED, found = null;
  const apply = () => {
    const { terms, problems } = parse(query.value);
    found = judge(terms);
    listCauses();
    listRows(terms);
    listSpots("#places", (row) => Number(row.dataset.i), found.places, terms, "q", (row) => places[row.dataset.i] ?? places.at(-1));
    listSpots("#stacks", (row) => row.dataset.stack, found.stacks, terms, "p", (row) => low(row.dataset.stack));
    say(terms, problems);
    for (const chip of every("#chips .chip")) chip.setAttribute("aria-pressed", String(chosen(terms).includes(low(chip.dataset.verdict))));
  };
  const listCauses = () => {
    let listed = 0, hidden = 0;
    table?.classList.toggle("narrowed", found.where !== null);
    for (const line of table ? every("tr.cause", table) : []) {
      const number = found.counts[line.dataset.i];
      const visible = number > 0 && listed < shown;
      if (number > 0) visible ? listed++ : hidden++;
      line.hidden = !visible;
      const detail = line.nextElementSibling;
      if (detail?.classList.contains("detail")) detail.hidden = !visible;
      if (visible) listWhere(line.cells[5], found.where?.[line.dataset.i]);
      const cell = line.cells[1];
      if (cell.dataset.v !== String(number)) {
        cell.dataset.v = number;
        cell.textContent = grouped(number);
      }
    }
    const more = one("#more");
    if (more) {
      more.hidden = !hidden;
      more.textContent = `Show all ${grouped(listed + hidden)}`;
    }
  };
  // If a search names parties, each line shows those that matched.
  const wholes = new WeakMap();
  const listWhere = (cell, at) => {
    if (!wholes.has(cell)) wholes.set(cell, [...cell.childNodes]);
    if (!at) return cell.replaceChildren(...wholes.get(cell));
    const lines = at.slice(0, 3).map((party) => {
      const line = make("div");
      line.append(make("bdi", "", party[WHO]), " ", make("span", "soft", party[STACK] ? stackName(data.stacks[party[STACK]]) : ""));
      return line;
    });
    if (at.length > 3) lines.push(make("div", "soft", `and ${grouped(at.length - 3)} more`));
    cell.replaceChildren(...lines);
  };
  const listRows = (terms) => {
    const narrow = terms.some((term) => "qpnmc".includes(term.field) && term.field);
    for (const row of every("#rows tbody tr, #matrix tbody tr")) {
      const said = { a: low(row.dataset.id), s: low(row.dataset.state), l: low(row.dataset.level), "": low(row.textContent) };
      const itself = !narrow && terms.every((term) => holds(term, said[term.field]));
      row.hidden = terms.length > 0 && !itself && !found.ids.has(row.dataset.id);
    }
  };
  const listSpots = (selector, key, seen, terms, field, name) => {
    for (const row of every(`${selector} tbody tr`)) {
      const counts = seen.get(key(row)) ?? {};
      const named = terms.every((term) => term.field !== field || holds(term, name(row)));
      const others = terms.some((term) => term.field !== field);
      row.hidden = !named || (others && !Object.keys(counts).length);
      const cells = every("td.n", row).slice(-2);
      ["failed", "warning"].forEach((kind, index) => mark(cells[index], kind, terms.length ? counts[kind] ?? 0 : null));
    }
  };
  const mark = (cell, kind, number) => {
    cell.dataset.whole ??= cell.dataset.v;
    const value = number ?? Number(cell.dataset.whole);
    if (cell.dataset.v === String(value)) return;
    cell.dataset.v = value;
    cell.textContent = grouped(value);
    cell.className = `n ${value ? kind : "zero"}`;
  };
  const say = (terms, problems) => {
    const tally = one("#tally");
    const numbers = found.counts.filter((number) => number > 0);
    const sum = numbers.reduce((total, number) => total + number, 0);
    const text = `${grouped(numbers.length)} of ${grouped(causes.length)} causes, ${grouped(sum)} findings`;
    tally.replaceChildren(make("span", "", terms.length ? text : ""), ...[...problems, ...missing].map((each) => make("span", "problem", ` ${each}`)));
  };

  // The page's address holds the search, the order, what is open, and the time that is chosen:
  // #?q=a:2012+s:failed&sort=causes,1,descending&open=1a2b3c4d5e&time=1795176000000-1795179600000

  let order = "";
  let missing = []; // what is to be said of findings that the address names and the report does not have
  const opened = new Set(); // the names of the open findings, which are the same in each report that has them
  const keep = () => {
    const parts = new URLSearchParams();
    if (query.value.trim()) parts.set("q", query.value.trim());
    if (order) parts.set("sort", order);
    if (opened.size) parts.set("open", [...opened].join(","));
    if (chosenTime) parts.set("time", chosenTime.chosen.join("-"));
    if (chosenTime?.shown) parts.set("zoom", chosenTime.shown.join("-"));
    const text = parts.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
    if (text || location.hash.startsWith("#?")) history.replaceState(null, "", text ? `#?${text}` : "#");
  };
  const read = () => {
    if (!location.hash.startsWith("#?")) return false;
    const parts = new URLSearchParams(location.hash.slice(2));
    query.value = parts.get("q") ?? "";
    const timesOf = (name) => (parts.get(name) ?? "").split("-").map(Number).filter((time) => time > 0);
    chosenTime = timesOf("time").length === 2 ? { chosen: timesOf("time"), shown: timesOf("zoom").length === 2 && timesOf("zoom") } : null;
    const [name, column, direction] = (parts.get("sort") ?? "").split(",");
    const head = name ? one(`table#${CSS.escape(name)} thead`)?.rows[0].cells[Number(column)] : null;
    if (head?.dataset.sort) sort(head, direction === "ascending" ? "ascending" : "descending");
    const wanted = (parts.get("open") ?? "").split(",").filter(Boolean);
    for (const line of lines) if (wanted.includes(nameOf(line)) !== opened.has(nameOf(line))) toggle(line);
    const known = new Set(lines.map(nameOf)), lost = wanted.filter((name) => !known.has(name)).length;
    missing = lost ? [wanted.length === 1 ? "The finding of this link is not in this report." : `Of the findings of this link, ${grouped(lost)} of ${grouped(wanted.length)} are not in this report.`] : [];
    return wanted[0] ? lines.find((line) => nameOf(line) === wanted[0]) ?? true : true;
  };
  const nameOf = (line) => data.causes[line.dataset.i].k;

  // Sorting

  const sort = (head, direction) => {
    const whole = head.closest("table"), body = whole.tBodies[0], column = head.cellIndex;
    for (const each of every("th[aria-sort]", whole)) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    order = `${whole.id},${column},${direction}`;
    const numeric = head.dataset.sort === "n", sign = direction === "ascending" ? 1 : -1;
    const value = (row) => {
      const cell = row.cells[column], text = cell.dataset.v ?? cell.textContent;
      return numeric || !Number.isNaN(Number(text)) ? Number(text) : text;
    };
    const rows = [...body.rows].filter((row) => !row.classList.contains("detail"));
    const keyed = rows.map((row) => ({ row, value: value(row), detail: row.nextElementSibling }));
    const compare = new Intl.Collator("en", { numeric: true }).compare;
    keyed.sort((a, b) => sign * (typeof a.value === "number" ? a.value - b.value : compare(a.value, b.value)));
    for (const { row, detail } of keyed) {
      body.append(row);
      if (detail?.classList.contains("detail")) body.append(detail);
    }
  };
  const sortable = () => {
    for (const head of every("th[data-sort]")) {
      const button = make("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const first = head.dataset.sort === "n" ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        sort(head, head.getAttribute("aria-sort") === first ? other : first);
        if (head.closest("#causes")) listCauses();
        keep();
      });
    }
  };

  // Samples

  const openable = () => {
    for (const line of lines) {
      const cause = data.causes[line.dataset.i];
      const button = make("button", "open");
      button.type = "button";
      button.setAttribute("aria-expanded", "false");
      button.setAttribute("aria-label", `Messages: ${cause.a}, ${cause.r.slice(0, 80)}`);
      line.cells[0].append(button);
      button.addEventListener("click", () => { toggle(line); keep(); });
      line.classList.add("opens");
      line.addEventListener("click", (event) => {
        if (event.target.closest("button, a") || String(getSelection())) return;
        toggle(line);
        keep();
      });
    }
  };
  const toggle = (line) => {
    const detail = line.nextElementSibling, button = one(".open", line);
    if (detail?.classList.contains("detail")) {
      detail.remove();
      opened.delete(nameOf(line));
      button.setAttribute("aria-expanded", "false");
      return;
    }
    opened.add(nameOf(line));
    const row = make("tr", "detail"), cell = make("td"), cards = make("div", "samples");
    cell.colSpan = line.cells.length;
    const cause = data.causes[line.dataset.i];
    const { terms } = parse(query.value);
    const here = cause.s.filter((sample) => terms.every((term) => term.field !== "q" || holds(term, low(sample.q ?? ""))));
    cards.append(...here.map((sample) => card(sample, cause)));
    if (cause.s.length && !here.length) cards.append(make("p", "soft", "Its earliest messages went to other destinations; those that match the search are in verdicts/."));
    if (!cause.s.length) cards.append(make("p", "soft", "There is no room on this page for its messages; they are in report.json and in verdicts/."));
    cell.append(about(cause), cards);
    row.append(cell);
    line.after(row);
    button.setAttribute("aria-expanded", "true");
  };
  // What an opened finding begins with: since when, the rule with its place, and what to change, with the stacks of its
  // parties first.
  const about = (cause) => {
    const whole = make("div", "about"), rule = data.rules[cause.y], resting = Object.keys(cause.f);
    whole.append(make("p", "since", since(cause)));
    if (rule) whole.append(...demanded(cause, rule));
    if (resting.length) whole.append(make("p", "soft", `${cause.v === "missingInput" ? "For the same reason" : "As they rest on it"}, ${resting.join(", ")} could not be judged.`));
    if (Object.keys(cause.b).length) whole.append(make("p", "soft", `The same mistake breaks ${Object.keys(cause.b).join(", ")}.`));
    const link = make("a", "", "Link to this finding"), line = make("p", "soft links");
    link.href = `#?open=${cause.k}`;
    line.append(link);
    whole.append(line);
    return whole;
  };
  const since = (cause) => {
    const [first, last] = cause.t1, messages = `${grouped(cause.n)} ${cause.n === 1 ? "message" : "messages"}`;
    if (!first) return `${messages}.`;
    if (cause.n === 1) return `1 message, captured ${told(first)}.`;
    return `${messages} since ${told(first)}${last && told(last) !== told(first) ? `, last ${told(last)}` : ""}.`;
  };
  const demanded = (cause, rule) => {
    const text = make("p", "rule"), place = make("a", "", rule.p[0].toUpperCase() + rule.p.slice(1)), list = make("dl", "remedies");
    place.href = rule.h;
    place.rel = "noreferrer noopener";
    text.append(make("strong", "", cause.l === "none" ? "MUST" : cause.l), ` ${rule.r} `, make("span", "soft"));
    text.lastChild.append(place, ...(rule.q ? [": ", make("q", "", rule.q)] : []), /[.]$/.test(rule.q) ? "" : ".");
    const seen = new Set(cause.w.filter((_, index) => index % 2 === 0).map((by) => data.stacks[partyOf(by)[STACK]]));
    const stacks = Object.keys(rule.b), own = stacks.filter((stack) => seen.has(stack));
    list.append(...own.flatMap((stack) => remedy(data.names[stack], rule.b[stack])), ...remedy("In general", rule.g));
    const others = stacks.filter((stack) => !seen.has(stack));
    if (!others.length) return [text, list];
    const more = make("details"), rest = make("dl", "remedies");
    rest.append(...others.flatMap((stack) => remedy(data.names[stack], rule.b[stack])));
    more.append(make("summary", "", "With other stacks"), rest);
    return [text, list, more];
  };
  const remedy = (name, [words, code]) => {
    const value = make("dd", "", code ? `${words} ` : words);
    if (code) value.append(make("code", "", code));
    return [make("dt", "", name), value];
  };
  const card = (sample, cause) => {
    const whole = make("article", "sample");
    if (sample.r && sample.r !== cause.r) whole.append(framed("p", sample.r));
    for (const each of sample.df ?? []) whole.append(difference(each));
    const list = make("dl");
    const items = [["Exchange", sample.e], ["Message", sample.i], ["Expected fault", sample.x1], ["Observed fault", sample.x2]];
    if (sample.x1 && !sample.x2) items[3][1] = "none";
    for (const [name, value] of items) if (value) list.append(framed("dt", name), framed("dd", value));
    whole.append(list);
    const line = make("div", "exchange");
    line.append(...(sample.ms ?? []).map((each, index) => message(each, sample, index ? sample.ms[0] : null)));
    if (!sample.ms) line.append(make("p", "soft", `${[sample.d, sample.q && `at ${sample.q}`].filter(Boolean).join(" ")}, ${told(sample.t)}`));
    whole.append(line);
    if (sample.c) whole.append(copies(sample.c, cause));
    if (sample.x) whole.append(make("p", "soft", "There is no room on this page for all of this exchange; it is in report.json."));
    return whole;
  };
  const difference = ([place, seen, right, isValue]) => {
    const list = make("dl", "difference");
    list.append(make("dt", "place", place), make("dd"));
    for (const [name, kind, pieces] of [["Seen", "seen", seen], [isValue ? "Right" : "Accepted", "right", right]]) {
      const value = make("dd", kind);
      value.append(...(pieces.length ? marked(pieces) : [make("em", "", "nothing")]));
      list.append(make("dt", "", name), value);
    }
    return list;
  };
  const marked = (pieces) => pieces.map(([text, isMarked]) => make(isMarked ? "mark" : "bdi", "", text));
  // A message in its time line: the second one tells how long after the first it was captured.
  const message = (said, sample, first) => {
    const part = make("section", said.d === sample.d ? "message judged" : "message");
    const after = first ? (new Date(said.t) - new Date(first.t)) : null;
    part.append(make("h3", "", said.d[0].toUpperCase() + said.d.slice(1)));
    part.append(make("p", "soft", [told(said.t), after !== null && lasting(after), said.k && `looks like ${stackName(said.k)}`].filter(Boolean).join(", ")));
    const list = make("dl");
    for (const [name, value] of said.h ?? []) list.append(framed("dt", name), framed("dd", value));
    part.append(list);
    if (said.b?.length) {
      const body = make("pre");
      body.append(...marked(said.b), said.m ? `\n… ${grouped(said.m)} more` : "");
      part.append(body);
    }
    return part;
  };
  const lasting = (milliseconds) => {
    const size = Math.abs(milliseconds);
    const text = size >= 60000 ? `${Math.floor(size / 60000)} min ${Math.round(size % 60000 / 1000)} s` : size >= 1000 ? `${(size / 1000).toFixed(1)} s` : size ? `${size} ms` : "less than 1 ms";
    return milliseconds < 0 ? `${text} earlier, as clocks disagree` : `${text} later`;
  };
  const COPIES = [["raw", "Raw message"], ["record", "Capture record"], ["call", "soapjms call"], ["ticket", "Markdown for a ticket"]];
  // A text is whole, or in pieces, of which a number stands for one of the parts that several texts share.
  const joined = (texts, name, cause) => {
    const text = [texts[name]].flat().map((each) => (typeof each === "number" ? texts.parts[each] : each)).join("");
    const page = location.href.split(/[?#]/)[0]; // without what lets a reader in
    return name === "ticket" ? `${text}\nFinding: <${page}#?open=${cause.k}>\n` : text;
  };
  const copies = (texts, cause) => {
    const row = make("div", "copies");
    row.append(make("span", "soft", "Copy"));
    for (const [name, title] of COPIES) {
      if (texts[name] === undefined) continue;
      const button = make("button", "chip", title);
      button.type = "button";
      button.addEventListener("click", () => copy(button, joined(texts, name, cause), row));
      row.append(button);
    }
    row.append(make("span", "told"));
    row.lastChild.setAttribute("role", "status");
    if (texts.lost) row.append(make("p", "soft", texts.call ? `The call differs: ${texts.lost}.` : `No soapjms call: ${texts.lost}.`));
    return row;
  };
  // Where a page may not write to the clipboard, the text stands there, selected.
  const copy = async (button, text, row) => {
    one("textarea", row)?.remove();
    try {
      await navigator.clipboard.writeText(text);
      one(".told", row).textContent = `${button.textContent} copied`;
    } catch {
      const area = make("textarea");
      area.readOnly = true;
      area.value = text;
      area.setAttribute("aria-label", button.textContent);
      row.append(area);
      area.select();
      one(".told", row).textContent = "Press Ctrl+C to copy";
    }
  };
  const framed = (name, text) => {
    const element = make(name);
    element.append(make("bdi", "", text));
    return element;
  };

  // Verdicts as buttons

  const chosen = (terms) => {
    const term = terms.find((each) => each.field === "s" && !each.not);
    return term ? every("#chips .chip").map((chip) => low(chip.dataset.verdict)).filter((each) => fits(term, each)) : [];
  };
  const choose = (verdict) => {
    const { terms } = parse(query.value);
    const now = chosen(terms), name = low(verdict);
    const next = now.includes(name) ? now.filter((each) => each !== name) : [...now, name];
    const rest = query.value.replace(/(^|\s)s:("[^"]*"?|\S+)/gi, " ").trim();
    query.value = [rest, next.length ? `s:${next.join(",")}` : ""].filter(Boolean).join(" ");
    shown = LISTED;
    apply();
    keep();
  };

  // Times in the reader's zone

  const told = (text) => inZone.told(new Date(text));
  const tellTimes = () => {
    for (const each of every("time")) {
      each.title = each.textContent;
      each.textContent = told(each.dateTime);
    }
  };

  // Keys

  const move = (by) => {
    const listed = table ? every("tr.cause:not([hidden])", table) : [];
    const at = listed.findIndex((line) => line.contains(document.activeElement));
    const next = listed[at < 0 ? 0 : Math.min(Math.max(at + by, 0), listed.length - 1)];
    if (!next) return;
    next.scrollIntoView({ block: "nearest" });
    one(".open", next).focus({ preventScroll: true });
  };
  const tellKeys = () => {
    const help = one(".help");
    help.open = !help.open;
    one("summary", help).focus();
  };

  // Start

  const start = () => {
    for (const each of every(".search, .help")) each.hidden = false;
    tellTimes();
    openable();
    sortable();
    let waiting = 0;
    const run = () => {
      clearTimeout(waiting);
      shown = LISTED;
      missing = [];
      apply();
      keep();
    };
    query.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(run, WAIT);
    });
    query.addEventListener("change", run);
    for (const chip of every("#chips .chip")) chip.addEventListener("click", () => choose(chip.dataset.verdict));
    one("#more")?.addEventListener("click", () => { shown = Infinity; listCauses(); });
    for (const link of every(".bar nav a, .skip")) {
      link.addEventListener("click", (event) => { // keeps the search, which is in the address
        event.preventDefault();
        const target = one(link.hash);
        target.scrollIntoView();
        target.focus({ preventScroll: true });
      });
    }
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !event.ctrlKey && !event.metaKey && document.activeElement !== query) {
        event.preventDefault();
        query.focus();
      } else if (event.key === "Escape" && document.activeElement === query) {
        query.value = "";
        apply();
        keep();
      } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, textarea")) {
        if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
        if (event.key === "?") tellKeys();
      }
    }, { signal });
    addEventListener("hashchange", () => {
      const found = read();
      if (!found) return;
      restoreTime?.();
      shown = LISTED;
      apply();
      show(found);
    }, { signal });
    addEventListener("beforeprint", () => every("details.numbers").forEach((each) => { each.open = false; }), { signal });
    const found = read();
    keepAddress = keep;
    apply();
    if (found instanceof Element || missing.length) show(found);
  };
  // Goes to a finding whose name is in the address, or else to the list.
  const show = (found) => {
    if (!(found instanceof Element)) return one("#findings").scrollIntoView();
    found.hidden = false;
    found.scrollIntoView();
    one(".open", found).focus({ preventScroll: true });
  };
  start();
};

