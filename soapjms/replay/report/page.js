"use strict";
// Filters, sorts and opens the content of the page. All data of a log is inserted as text, never as markup.
(() => {
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

  const data = JSON.parse(one("#data").textContent);
  const table = one("#causes");
  const lines = table ? every("tr.cause", table) : [];
  const query = one("#query");
  const low = (text) => text.toLowerCase();
  const places = data.places.map(low);
  const stacks = data.stacks.map(low);
  const nodes = data.nodes;
  const PLACE = 0, STACK = 1, NODE = 2, WHO = 3; // of a party
  const partyOf = (number) => data.parties.at(number); // that of all others is the last one
  const causes = data.causes.map((cause) => {
    const ids = low(cause.s.map((each) => [each.e, each.i].join(" ")).join(" "));
    const said = cause.s.map((each) => [each.r, each.q].join(" ")).join(" ");
    return {
      n: cause.n, w: cause.w, a: low([cause.a, ...Object.keys(cause.f)].join(" ")), s: low(cause.v), l: low(cause.l), c: low(cause.c.join(" ")), m: ids,
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
    if (sum) found.ids.add(said.a);
    return sum;
  };
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
    for (const chip of every(".chip")) chip.setAttribute("aria-pressed", String(chosen(terms).includes(low(chip.dataset.verdict))));
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
      line.append(make("bdi", "", party[WHO]), " ", make("span", "soft", party[STACK] ? data.stacks[party[STACK]] : ""));
      return line;
    });
    if (at.length > 3) lines.push(make("div", "soft", `and ${grouped(at.length - 3)} more`));
    cell.replaceChildren(...lines);
  };
  const listRows = (terms) => {
    const narrow = terms.some((term) => "qpnmc".includes(term.field) && term.field);
    for (const row of every("#rows tbody tr")) {
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
    tally.replaceChildren(make("span", "", terms.length ? text : ""), ...problems.map((each) => make("span", "problem", ` ${each}`)));
  };

  // The page's address holds the search and the order: #?q=a:2012+s:failed&sort=causes,1,descending

  let order = "";
  const keep = () => {
    const parts = new URLSearchParams();
    if (query.value.trim()) parts.set("q", query.value.trim());
    if (order) parts.set("sort", order);
    const text = parts.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
    if (text || location.hash.startsWith("#?")) history.replaceState(null, "", text ? `#?${text}` : "#");
  };
  const read = () => {
    if (!location.hash.startsWith("#?")) return false;
    const parts = new URLSearchParams(location.hash.slice(2));
    query.value = parts.get("q") ?? "";
    const [name, column, direction] = (parts.get("sort") ?? "").split(",");
    const head = name ? one(`table#${CSS.escape(name)} thead`)?.rows[0].cells[Number(column)] : null;
    if (head?.dataset.sort) sort(head, direction === "ascending" ? "ascending" : "descending");
    return true;
  };

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
      button.addEventListener("click", () => toggle(line, button));
      line.classList.add("opens");
      line.addEventListener("click", (event) => {
        if (!event.target.closest("button, a") && !String(getSelection())) toggle(line, button);
      });
    }
  };
  const toggle = (line, button) => {
    const detail = line.nextElementSibling;
    if (detail?.classList.contains("detail")) {
      detail.remove();
      button.setAttribute("aria-expanded", "false");
      return;
    }
    const row = make("tr", "detail"), cell = make("td"), cards = make("div", "samples");
    cell.colSpan = line.cells.length;
    const cause = data.causes[line.dataset.i];
    const { terms } = parse(query.value);
    const here = cause.s.filter((sample) => terms.every((term) => term.field !== "q" || holds(term, low(sample.q ?? ""))));
    cards.append(...here.map(card));
    if (cause.s.length && !here.length) cards.append(make("p", "soft", "Its earliest messages went to other destinations; those that match the search are in verdicts/."));
    if (!cause.s.length) cards.append(make("p", "soft", "There is no room on this page for its messages; they are in report.json and in verdicts/."));
    cell.append(cards);
    row.append(cell);
    line.after(row);
    button.setAttribute("aria-expanded", "true");
  };
  const card = (sample) => {
    const whole = make("article", "sample");
    whole.append(make("h3", "", sample.t.replace("T", " ").replace("Z", " UTC")));
    const about = make("p", "soft");
    about.append(make("bdi", "", [sample.d, sample.q && `at ${sample.q}`, sample.k && `by ${sample.k}`].filter(Boolean).join(" ")));
    whole.append(about);
    if (sample.r) whole.append(framed("p", sample.r));
    const list = make("dl");
    const items = [["Exchange", sample.e], ["Message", sample.h ? "" : sample.i], ["Expected fault", sample.x1], ["Observed fault", sample.x2]];
    if (sample.x1 && !sample.x2) items[3][1] = "none";
    for (const [name, value] of [...items, ...(sample.h ?? [])]) if (value) list.append(framed("dt", name), framed("dd", value));
    whole.append(list);
    if (sample.b) whole.append(make("pre", "", sample.b + (sample.m ? `\n… ${grouped(sample.m)} more` : "")));
    if (sample.x) whole.append(make("p", "soft", "There is no room on this page for the message; it is in report.json."));
    return whole;
  };
  const framed = (name, text) => {
    const element = make(name);
    element.append(make("bdi", "", text));
    return element;
  };

  // Verdicts as buttons

  const chosen = (terms) => {
    const term = terms.find((each) => each.field === "s" && !each.not);
    return term ? every(".chip").map((chip) => low(chip.dataset.verdict)).filter((each) => fits(term, each)) : [];
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

  const clock = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
  const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" });
  const tellTimes = () => {
    for (const each of every("time")) {
      const time = new Date(each.dateTime);
      each.title = each.textContent;
      each.textContent = `${clock.format(time).replace(" at ", ", ")} ${zone.formatToParts(time).find((part) => part.type === "timeZoneName").value}`;
    }
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
      apply();
      keep();
    };
    query.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(run, WAIT);
    });
    query.addEventListener("change", run);
    for (const chip of every(".chip")) chip.addEventListener("click", () => choose(chip.dataset.verdict));
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
      }
    });
    addEventListener("hashchange", () => {
      if (!read()) return;
      shown = LISTED;
      apply();
      one("#findings").scrollIntoView();
    });
    addEventListener("beforeprint", () => every("details.numbers").forEach((each) => { each.open = false; }));
    read();
    apply();
  };
  start();
})();
