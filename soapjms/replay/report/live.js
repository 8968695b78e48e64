"use strict";
// Keeps a report that is still being written current: it replaces the content of the page by that of a newer report, and
// restores what the reader had open, searched for, looked at and focused. The newer page is parsed, never executed.
(() => {
  const one = (selector, within = document) => within.querySelector(selector);
  const every = (selector, within = document) => [...within.querySelectorAll(selector)];
  const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });
  const RETRY = 5000; // milliseconds until another connection, if the browser gives up
  const QUIET = 1000; // milliseconds without a key until the content may be replaced
  const POLL = 300; // milliseconds between two looks whether it may

  let shown = document.currentScript.dataset.report;
  let told = performance.now(); // when the report that is shown was made
  let newest = told;
  let isStale = false, isUpdating = false, isConnected = true;

  // The line at the lower edge

  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
    .live { position: fixed; right: 1rem; bottom: 1rem; z-index: 6; margin: 0; padding: .25rem .8rem; border: 1px solid var(--strong);
      border-radius: 1rem; background: var(--paper); color: var(--soft); font-size: .8125rem; max-width: calc(100vw - 2rem); }
    .live::before { content: ""; display: inline-block; width: .55em; height: .55em; margin-right: .5em; border-radius: 50%; background: var(--passed-bar); }
    .live.lost::before { background: var(--warning-bar); }
    footer .alone { display: none; }
    @media print { .live { display: none; } }`);
  document.adoptedStyleSheets.push(sheet);
  const line = document.createElement("aside"), state = document.createElement("span"), age = document.createElement("span");
  line.className = "live";
  line.setAttribute("aria-label", "Updates");
  state.setAttribute("role", "status"); // what changes each second is beside it, and not read out
  line.append(state, age);

  const ago = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
  const agoOf = (seconds) => {
    if (seconds < 60) return ago.format(-Math.floor(seconds), "second");
    return seconds < 3600 ? ago.format(-Math.floor(seconds / 60), "minute") : ago.format(-Math.floor(seconds / 3600), "hour");
  };
  const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  const say = () => {
    line.classList.toggle("lost", !isConnected);
    write(state, isConnected ? "Live" : "Not connected; trying again");
    const seconds = (performance.now() - told) / 1000;
    if (!isConnected) write(age, `; the report is of ${clock.format(Date.now() - 1000 * seconds)}`);
    else write(age, isStale && isSelecting() ? ", a newer report waits while text is selected" : `, updated ${agoOf(seconds)}`);
  };

  // What a reader uses is found again by what it is, not by where it stands

  const CANDIDATES = "[id], [aria-expanded], [aria-label], a[href], button, input, summary, details";
  const words = (element) => element.textContent.replace(/\d[\d,.]*/g, "#").trim().slice(0, 120);
  const own = (element) => element.id || element.getAttribute("aria-label") || element.getAttribute("href")
    || words(element.matches("details") ? one("summary", element) ?? element : element);
  const rowOf = (element) => {
    const row = element.closest("tr");
    const head = row?.classList.contains("detail") ? row.previousElementSibling : row;
    return head ? one("[aria-label]", head)?.getAttribute("aria-label") ?? head.cells[0]?.textContent ?? "" : "";
  };
  const around = (element) => element.parentElement?.closest("[id], section[aria-labelledby]");
  const keyed = () => {
    const elements = new Map(), keys = new Map(), counts = new Map();
    for (const element of every(CANDIDATES)) {
      if (line.contains(element)) continue;
      const place = around(element);
      const name = [element.localName, place?.id || place?.getAttribute("aria-labelledby"), rowOf(element), own(element)].join("\n");
      counts.set(name, (counts.get(name) ?? 0) + 1);
      const key = `${name}\n${counts.get(name)}`;
      elements.set(key, element);
      keys.set(element, key);
    }
    return { elements, keys };
  };
  const isSeen = (element) => {
    const box = element.getBoundingClientRect();
    return box.height > 0 && box.top >= (one(".bar")?.getBoundingClientRect().bottom ?? 0) && box.bottom <= innerHeight;
  };
  const listed = () => every("tr.cause:not([hidden])").length;

  const remember = () => {
    const { keys } = keyed();
    const keysOf = (selector) => every(selector).filter((element) => keys.has(element)).map((element) => keys.get(element));
    const focused = document.activeElement, query = one("#query");
    const anchor = keys.has(focused) && isSeen(focused) ? focused : [...keys.keys()].find((element) => element.localName !== "section" && isSeen(element));
    return {
      opened: keysOf("[aria-expanded=true]"),
      sorted: every("th[aria-sort] button").map((button) => [keys.get(button), button.parentElement.getAttribute("aria-sort")]),
      details: keysOf("details[open]"),
      listed: listed(),
      hash: location.hash,
      query: query && { value: query.value, from: query.selectionStart, to: query.selectionEnd },
      focus: keys.get(focused),
      anchor: scrollY && anchor ? { key: keys.get(anchor), top: anchor.getBoundingClientRect().top } : null,
      top: scrollY,
      frames: every(".scroll").map((element) => [keys.get(element), element.scrollLeft]),
    };
  };
  const restore = (before) => {
    const query = one("#query");
    if (query && query.value !== before.query?.value) {
      query.value = before.query?.value ?? "";
      query.dispatchEvent(new Event("change"));
    }
    const more = one("#more");
    if (more && !more.hidden && listed() < before.listed) more.click();
    const now = keyed().elements;
    for (const key of before.opened) if (now.get(key)?.getAttribute("aria-expanded") === "false") now.get(key).click();
    for (const [key, direction] of before.sorted) {
      for (let clicks = 0; clicks < 2 && now.has(key) && now.get(key).parentElement.getAttribute("aria-sort") !== direction; clicks++) now.get(key).click();
    }
    const { elements } = keyed();
    for (const key of before.details) if (elements.has(key)) elements.get(key).open = true;
    for (const [key, left] of before.frames) if (elements.has(key)) elements.get(key).scrollLeft = left;
    if (location.hash !== before.hash) history.replaceState(null, "", before.hash || "#");
    document.activeElement.blur(); // a finding that the address names has it
    elements.get(before.focus)?.focus({ preventScroll: true });
    if (query && document.activeElement === query) query.setSelectionRange(before.query.from, before.query.to);
    scrollTo({ top: before.top, behavior: "instant" });
    const anchor = before.anchor && elements.get(before.anchor.key);
    if (anchor) scrollBy({ top: anchor.getBoundingClientRect().top - before.anchor.top, behavior: "instant" });
  };

  // Replacing the content

  const load = () => new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.pathname + location.search);
    request.responseType = "document";
    request.onload = () => (request.response && one("script[data-report]", request.response) ? resolve(request.response) : reject());
    request.onerror = reject;
    request.send();
  });
  const replace = (next) => {
    if (one("style", next).textContent !== one("style").textContent) return location.reload(); // another version
    const content = one("#data", next).textContent, before = remember();
    for (const left of every("script, noscript", next)) left.remove(); // the latter has elements where it was not read by a page
    document.title = next.title;
    for (const element of [...document.body.childNodes]) if (element !== line) element.remove();
    line.before(...next.body.childNodes);
    dispatchEvent(new CustomEvent("report", { detail: content }));
    restore(before);
  };
  const update = async () => {
    if (isUpdating) return;
    isUpdating = true;
    while (isStale) {
      await idle();
      const made = newest;
      const next = await load().catch(() => null);
      if (next === null) {
        await pause(RETRY);
        continue;
      }
      await idle();
      const name = one("script[data-report]", next).dataset.report;
      isStale = newest !== made;
      if (name !== shown) replace(next);
      [shown, told] = [name, made];
    }
    isUpdating = false;
    say();
  };

  // Waiting while the reader types, drags or selects

  let key = -QUIET, isDragging = false;
  document.addEventListener("keydown", () => { key = performance.now(); }, { capture: true });
  document.addEventListener("input", () => { key = performance.now(); }, { capture: true });
  for (const name of ["pointerdown", "pointermove", "pointerup"]) { // a move tells of a button that came up outside
    document.addEventListener(name, (event) => { isDragging = event.buttons > 0; }, { capture: true });
  }
  const isSelecting = () => getSelection().type === "Range" && !document.activeElement?.matches("input");
  const isBusy = () => document.hidden || isDragging || isSelecting() || performance.now() - key < QUIET;
  const idle = async () => {
    while (isBusy()) await pause(POLL);
  };

  // The server's events; a page that nobody sees has no connection, of which a browser has few

  let source = null;
  const connect = () => {
    source?.close();
    source = new EventSource(`events${location.search}`);
    source.addEventListener("open", () => {
      isConnected = true;
      say();
    });
    source.addEventListener("report", (event) => {
      newest = performance.now() - 1000 * Number(event.data);
      if (event.lastEventId === shown) {
        told = newest;
      } else {
        isStale = true;
        update();
      }
      say();
    });
    source.addEventListener("error", () => {
      isConnected = false;
      say();
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY);
    });
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? source.close() : connect()));

  document.body.append(line);
  setInterval(say, 1000);
  say();
  connect();
})();
