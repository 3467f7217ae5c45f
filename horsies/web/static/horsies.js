/* What the pages do beyond links and forms: keys, live updates, selections, actions. Pages can be read without it. */
"use strict";
(() => {
  const root = document.body.dataset.root || "";
  const page = () => document.getElementById("page");
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  document.documentElement.classList.add("js");

  // Morphing keeps what the reader has opened, ticked or typed.
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => {
    if (name === "open" && node.tagName === "DETAILS") return false;
    if (name === "class" && node.matches("[data-row]")) return false; // the current line
    if (name === "checked" || (name === "value" && node.closest("form"))) return false;
    return !(["width", "height"].includes(name) && node.matches("figure.graph svg"));
  };

  // ------------------------------------------------------------------ refreshing
  const POLL = 5000, AGAIN = 15000;
  let refreshing = false, wanted = false, shares = true, asked = false, hadFocus = false;
  let last = Date.now(), pause = 1000; // the server says how long

  // Whoever has just done something must not get the answer that somebody else got a moment before.
  function refreshNow() { shares = false; refresh(); }

  async function refresh() {
    if (refreshing) { wanted = true; return; }
    const headers = shares ? { "X-Horsies-Refresh": "1" } : {};
    refreshing = true; wanted = false; asked = !shares; shares = true; last = Date.now();
    try {
      const where = { target: "#page", select: "#page", swap: "morph:outerHTML", headers };
      const wasAnswered = await htmx.ajax("GET", location.pathname + location.search, where).then(() => true, () => false);
      if (!wasAnswered) return; // htmx:sendError has told of it
      keepSelection();
      showAges();
      // What had it may be gone, such as a button of what was done; the keyboard stays where it was.
      if (hadFocus && document.activeElement === document.body) page().focus({ preventScroll: true });
    } finally {
      refreshing = false;
      if (wanted) soon();
    }
  }

  let timer = null;
  function soon() {
    wanted = true;
    if (timer || refreshing) return;
    timer = setTimeout(() => { timer = null; if (wanted) refresh(); }, Math.max(0, last + pause - Date.now()));
  }

  // ------------------------------------------------------------------ live updates
  let stream = null, poll = null, again = null, paused = sessionStorage.getItem("horsies-paused") === "1";
  const button = document.getElementById("live");

  // `polling` while the stream of events is interrupted, `timed` where there is none to be had.
  function show(state) {
    if (!button) return;
    button.dataset.state = state;
    button.setAttribute("aria-pressed", String(state !== "paused"));
    button.querySelector(".word").textContent = { live: "live", polling: "polling", timed: "polling", paused: "paused" }[state];
  }

  function topics() { return (page().dataset.topics || "").split(" ").filter(Boolean); }

  function concerns(event) {
    if (!topics().includes(event.topic)) return false;
    const only = page().dataset.ids;
    return !only || !event.ids.length || event.ids.some((id) => only.split(" ").includes(id));
  }

  function pollEvery(ms) {
    clearInterval(poll);
    poll = ms ? setInterval(() => { if (!document.hidden) soon(); }, ms) : null;
  }

  function connect() {
    disconnect();
    if (paused || document.hidden || !button) { show(paused ? "paused" : "timed"); return; }
    pollEvery(Number(page().dataset.poll) * 1000 || 0);
    if (!topics().length) { show("timed"); return; }
    stream = new EventSource(`${root}/api/events`);
    // Nobody has told what changed before it was open: since the page was made, or while it was down.
    stream.onopen = () => { show("live"); pollEvery(Number(page().dataset.poll) * 1000 || 0); soon(); };
    stream.onmessage = (message) => { if (concerns(JSON.parse(message.data))) soon(); };
    stream.onerror = () => {
      // The browser gives up where it is refused, as by a proxy while the server is started again. We do not.
      const isRefused = stream.readyState === EventSource.CLOSED;
      show(isRefused ? "timed" : "polling");
      pollEvery(POLL);
      if (isRefused) again = setTimeout(connect, AGAIN);
    };
  }

  function disconnect() {
    if (stream) stream.close();
    stream = null;
    clearTimeout(again);
    pollEvery(0);
  }

  function togglePaused() {
    paused = !paused;
    sessionStorage.setItem("horsies-paused", paused ? "1" : "0");
    connect();
    if (paused) { clearTimeout(timer); timer = null; wanted = false; } else soon();
  }

  if (button) button.addEventListener("click", togglePaused);
  document.addEventListener("visibilitychange", () => { connect(); if (!document.hidden && !paused) soon(); });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);

  // ------------------------------------------------------------------ ages
  // They grow between two refreshes, by the clock of the server: `data-now` is when it made the page.
  const LONG = [["d", "h", 86400, 3600], ["h", "min", 3600, 60], ["min", "s", 60, 1]];
  let made = "", ahead = 0;

  function duration(seconds) {
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    const left = Math.round(seconds);
    const unit = LONG.find(([, , size]) => left >= size);
    if (!unit) return `${left} s`;
    const [large, small, size, step] = unit, rest = Math.floor((left % size) / step);
    return `${Math.floor(left / size)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
  }

  function ago(seconds) {
    if (Math.abs(seconds) < 1) return "now";
    return seconds > 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
  }

  function showAges() {
    const now = page().dataset.now;
    if (!now || paused || document.hidden) return;
    if (now !== made) { made = now; ahead = Date.parse(now) - performance.now(); }
    const moment = ahead + performance.now();
    all("time[data-ago]").forEach((one) => { one.textContent = ago((moment - Date.parse(one.dateTime)) / 1000); });
  }
  showAges();
  setInterval(showAges, 1000);

  // ------------------------------------------------------------------ saying something
  function say(text, isBad = false, link = "") {
    if (all(".toast").some((toast) => toast.textContent === text)) return; // it is being said
    const toast = document.createElement("div");
    toast.className = isBad ? "toast bad" : "toast";
    toast.textContent = text;
    if (link) toast.append(" ", Object.assign(document.createElement("a"), { href: link, textContent: "Show it" }));
    document.getElementById("toasts").append(toast);
    setTimeout(() => toast.remove(), isBad || link ? 12000 : 6000);
  }

  // ------------------------------------------------------------------ dialogs and actions
  const dialog = document.getElementById("dialog");

  // In the dialog, because whatever is outside of an open one is behind it.
  function complain(text) {
    if (!dialog.open) { say(text, true); return; }
    const said = dialog.querySelector(".problem") || document.createElement("p");
    said.className = "problem";
    said.setAttribute("role", "alert");
    said.textContent = text;
    dialog.querySelector(".actions").before(said);
    said.scrollIntoView({ block: "nearest" });
  }
  const opened = { from: null };

  // Actions are requests to the JSON API: the fields of a form with the types that their names say.
  htmx.defineExtension("typed-json", {
    encodeParameters: (request, fields, form) => {
      const body = {};
      for (const field of form.querySelectorAll("[name]")) {
        const read = TYPES[field.dataset.type || "text"](field);
        if (read !== undefined) body[field.name] = read;
      }
      return JSON.stringify(body);
    },
  });
  const TYPES = {
    text: (field) => (field.value === "" ? undefined : field.value),
    number: (field) => (field.value === "" ? undefined : Number(field.value)),
    flag: (field) => (field.type === "checkbox" ? field.checked : field.value === "true"),
    json: (field) => JSON.parse(field.value),
  };
  // What is known about the value of a field that has a list, such as who serves a queue.
  dialog.addEventListener("input", (event) => {
    const hint = event.target.list && dialog.querySelector(`[data-hint-of="${event.target.id}"]`);
    if (!hint) return;
    const known = [...event.target.list.options].find((one) => one.value === event.target.value);
    hint.textContent = event.target.value && (known ? known.label : hint.dataset.otherwise);
    hint.classList.toggle("warn-text", hint.textContent.startsWith(hint.dataset.otherwise));
  });
  dialog.addEventListener("input", (event) => {
    if (event.target.dataset.type !== "json") return;
    let wrong = "";
    try { JSON.parse(event.target.value); } catch (error) { wrong = `This is not JSON: ${error.message}`; }
    event.target.setCustomValidity(wrong); // the browser says so, and sends nothing
  });
  document.body.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.verb !== "get") Object.assign(event.detail.headers, { "X-Horsies-Intent": "action", "Content-Type": "application/json" });
    if (event.detail.elt.hasAttribute("data-selection")) event.detail.parameters["ids"] = chosen();
  });
  // A session that has ended leads to the login, also if a part of a page is asked for.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    hadFocus = page().contains(document.activeElement);
    if (event.detail.target === page() && paused && !asked) event.detail.shouldSwap = false; // it was under way
    if (new URL(event.detail.xhr.responseURL).pathname !== `${root}/login`) return;
    event.detail.shouldSwap = false;
    location.reload();
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id === "dialog" && !dialog.open) {
      opened.from = document.activeElement;
      dialog.showModal();
      (dialog.querySelector("[autofocus]") || dialog.querySelector("button")).focus();
    }
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    pause = Number(event.detail.xhr.getResponseHeader("X-Horsies-Wait")) || pause;
    const form = event.detail.elt;
    if (event.detail.requestConfig.verb === "get" || !event.detail.successful) return;
    const answer = JSON.parse(event.detail.xhr.responseText);
    dialog.close();
    say(told(answer, form.dataset), answer.status === "FAILED", form.dataset.link ? form.dataset.link + encodeURIComponent(answer.task_id) : "");
    clearSelection();
    refreshNow();
  });
  // What came of it: many tasks may have moved on since the dialog asked about them, and a workflow may have ended.
  function told({ status, changed, skipped }, { said = "Done.", saidByStatus = "{}" }) {
    if (typeof changed !== "number") return JSON.parse(saidByStatus)[status] || said;
    const left = Object.values(skipped || {}).reduce((sum, number) => sum + number, 0);
    return (changed ? `${said} ${changed.toLocaleString("en")} changed` : "Nothing was changed") + (left ? `, ${left.toLocaleString("en")} left alone.` : ".");
  }
  document.body.addEventListener("htmx:responseError", (event) => {
    let text = `The server refused this (${event.detail.xhr.status}).`;
    try { text = JSON.parse(event.detail.xhr.responseText).message || text; } catch (_) { /* it was no JSON */ }
    if (event.detail.target === page()) text = `The page could not be refreshed (${event.detail.xhr.status}).`;
    if (dialog.contains(event.detail.elt)) complain(text); else say(text, true);
  });
  document.body.addEventListener("htmx:sendError", (event) => {
    if (event.detail.target === page()) show("polling"); else complain("The server does not answer.");
  });
  dialog.addEventListener("close", () => {
    dialog.replaceChildren();
    if (opened.from) opened.from.focus();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) dialog.close();
    const copy = event.target.closest("[data-copy]");
    if (copy) navigator.clipboard.writeText(copy.dataset.copy).then(() => say("Copied."), () => say("The browser does not allow to copy.", true));
    const failed = event.target.closest("[data-next-failed]");
    if (failed) { event.preventDefault(); showNext(failed.dataset.nextFailed.split(" ")); }
    const zoom = event.target.closest("[data-zoom]");
    if (zoom) zoomBy(Number(zoom.dataset.zoom));
  });

  // ------------------------------------------------------------------ selections
  function boxes() { return all("input[data-select]", page()); }
  function chosen() { return boxes().filter((box) => box.checked).map((box) => box.value); }
  function clearSelection() { boxes().forEach((box) => { box.checked = false; }); keepSelection(); }
  function keepSelection() {
    const count = chosen().length;
    all("[data-selected-count]").forEach((place) => { place.textContent = String(count); });
    all("[data-selection]").forEach((one) => { one.disabled = count === 0; });
    all("input[data-select-all]").forEach((box) => {
      box.checked = count > 0 && count === boxes().length;
      box.indeterminate = count > 0 && count < boxes().length;
    });
  }
  document.addEventListener("change", (event) => {
    if (event.target.matches("input[data-select-all]")) boxes().forEach((box) => { box.checked = event.target.checked; });
    if (event.target.matches("input[data-select], input[data-select-all]")) keepSelection();
    if (event.target.matches("form.filters select[data-now]")) event.target.form.requestSubmit();
  });
  // Empty fields are left out of the address, so that it stays short.
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form.filters, form.find")) return;
    const fields = [...event.target.elements].filter((one) => one.name && one.value === "" && !one.disabled);
    fields.forEach((one) => { one.disabled = true; });
    setTimeout(() => fields.forEach((one) => { one.disabled = false; }), 0);
  });

  // ------------------------------------------------------------------ graphs
  let scale = 1;
  function zoomBy(factor) {
    const svg = document.querySelector("figure.graph svg");
    if (!svg) return;
    scale = factor === 0 ? 1 : Math.min(4, Math.max(0.1, scale * factor));
    const [, , width, height] = svg.getAttribute("viewBox").split(/\s+/).map(Number);
    svg.setAttribute("width", String(width * scale));
    svg.setAttribute("height", String(height * scale));
  }
  // The box after the one in the address; after the last the first again.
  function showNext(ids) {
    const next = ids[(ids.indexOf(location.hash.slice(1)) + 1) % ids.length];
    location.replace(`#${next}`);
    const box = document.getElementById(next);
    if (!box) return;
    box.scrollIntoView({ block: "center", inline: "center" });
    const link = box.matches("a") ? box : box.querySelector("a");
    if (link) link.focus({ preventScroll: true });
  }
  function pan() {
    const figure = document.querySelector("figure.graph");
    if (!figure) return;
    let from = null;
    figure.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType !== "mouse" || event.target.closest("a")) return;
      from = [event.clientX + figure.scrollLeft, event.clientY + figure.scrollTop];
      figure.setPointerCapture(event.pointerId);
    });
    figure.addEventListener("pointermove", (event) => {
      if (!from) return;
      figure.scrollLeft = from[0] - event.clientX;
      figure.scrollTop = from[1] - event.clientY;
    });
    for (const end of ["pointerup", "pointercancel"]) figure.addEventListener(end, () => { from = null; });
    figure.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoomBy(event.deltaY < 0 ? 1.15 : 1 / 1.15);
    }, { passive: false });
  }
  pan();

  // ------------------------------------------------------------------ keys
  const rows = () => all("[data-row]", page());
  let goes = false;

  function move(by) {
    const lines = rows();
    if (!lines.length) return;
    const now = lines.findIndex((line) => line.classList.contains("is-current"));
    const next = Math.min(lines.length - 1, Math.max(0, now + by));
    lines.forEach((line) => line.classList.remove("is-current"));
    lines[next].classList.add("is-current");
    lines[next].scrollIntoView({ block: "nearest" });
    const link = lines[next].querySelector("a[data-open]");
    if (link) link.focus({ preventScroll: true });
  }

  function help() {
    const text = document.getElementById("help");
    dialog.replaceChildren(text.content.cloneNode(true));
    opened.from = document.activeElement;
    if (!dialog.open) dialog.showModal();
  }

  const KEYS = {
    "/": () => document.getElementById("search").focus(),
    "?": help,
    "j": () => move(1),
    "k": () => move(-1),
    "Enter": () => { const line = rows().find((one) => one.classList.contains("is-current")); const link = line && line.querySelector("a[data-open]"); if (link) link.click(); },
    "r": refreshNow,
    "p": togglePaused,
    "n": () => { const failed = document.querySelector("[data-next-failed]"); if (failed) failed.click(); },
    "Escape": () => document.activeElement.blur(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const field = event.target.closest("input, select, textarea");
    if (field && !(event.key === "Escape") && !field.matches("input[type=checkbox]")) return;
    if (dialog.open) return; // the browser closes it with Esc
    if (goes) {
      goes = false;
      const link = all("[data-go]").find((one) => one.dataset.go === event.key);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") { goes = true; setTimeout(() => { goes = false; }, 1500); return; }
    if (event.key === "Enter" && event.target.closest("a, button, summary, input")) return;
    const act = KEYS[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  // On a narrow screen the line of screens scrolls: the current one is in it.
  const current = document.querySelector(".top nav [aria-current]");
  if (current) current.closest("nav").scrollLeft = current.offsetLeft - current.closest("nav").clientWidth / 2;

  keepSelection();
  if (document.readyState === "complete") connect();
})();
