// Pages follow a log, stay fresh, answer to keys. Without it they work too.
"use strict";
(() => {
  const $ = (q, in_ = document) => in_.querySelector(q);
  const $$ = (q, in_ = document) => [...in_.querySelectorAll(q)];
  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
  const make = (tag, text, also) => Object.assign(document.createElement(tag), { textContent: text }, also);
  const many = (n) => n + (n === 1 ? " line" : " lines");
  const mostLines = 5000;
  let skew = 0; // of this clock against the server's

  // Times, in the words of the server.
  const about = (s) => {
    if (s < 60) return Math.floor(s) + "s";
    if (s < 3600) return Math.floor(s / 60) + "m";
    if (s < 48 * 3600) return Math.floor(s / 3600) + "h";
    return Math.floor(s / 86400) + "d";
  };
  const times = (in_) => {
    for (const t of $$("time", in_)) {
      const at = new Date(t.dateTime);
      if (isNaN(at)) continue;
      t.title = at.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
      if (!/^(in .+|.+ ago|just now)$/.test(t.textContent)) continue;
      const s = (Date.now() - skew - at) / 1000;
      t.textContent = s <= -1 ? "in " + about(-s) : s < 2 ? "just now" : about(s) + " ago";
    }
  };

  // ask fetches a page. Without one, nobody is signed in any more.
  const ask = async (url) => {
    const res = await fetch(url, { headers: { "Dayfly-Live": "1" }, signal: AbortSignal.timeout(60000) });
    if (res.status === 401 || res.redirected) return signedOut();
    if (!res.ok) throw Object.assign(new Error(), { final: [400, 403, 404, 410, 422].includes(res.status) });
    const date = Date.parse(res.headers.get("Date"));
    if (Math.abs(Date.now() - date) > 5000) skew = Date.now() - date;
    const page = new DOMParser().parseFromString(await res.text(), "text/html");
    if (page.title) document.title = page.title;
    return page;
  };
  const signedOut = () => {
    const p = make("p", "You are signed out. ", { className: "notice bad", role: "alert" });
    p.append(make("a", "Sign in again", { href: location.href }));
    $("main").prepend(p);
  };
  const shown = async () => {
    while (document.hidden) await new Promise((go) => document.addEventListener("visibilitychange", go, { once: true }));
  };

  // Parts that changed are swapped; one in use waits until it is not. How a run stands never waits.
  const late = new Map(), label = (d) => $("summary", d).firstChild.textContent;
  const place = (part) => {
    const name = part.dataset.part, old = $(`[data-part="${CSS.escape(name)}"]`), marked = getSelection();
    if (!old) return;
    const used = old.contains(document.activeElement) || (!marked.isCollapsed && old.contains(marked.anchorNode));
    if (used && name !== "head") return late.set(name, part);
    late.delete(name);
    times(part);
    // A person's change of it stays.
    for (const d of $$("details", part)) d.open = ($$("details", old).find((o) => label(o) === label(d)) ?? d).open;
    $$("tr a", part).find((a) => a.href === $("tr.here a", old)?.href)?.closest("tr").classList.add("here");
    for (const field of $$("input[id]", part)) {
      const { value, checked } = document.getElementById(field.id) ?? field;
      Object.assign(field, { value, checked });
    }
    if (!old.isEqualNode(part)) old.replaceWith(part);
  };
  const swap = (fresh) => $$("[data-part]", fresh).forEach(place);
  // Not while a button is pressed: a click misses a moving button.
  const retry = () => setTimeout(() => $(":active") || late.forEach(place));
  for (const freed of ["focusout", "selectionchange", "pointerup"]) document.addEventListener(freed, retry);

  const refresh = async (every) => {
    for (;;) {
      await sleep(every * (0.9 + Math.random() / 5));
      await shown();
      try {
        const page = await ask(location.href);
        if (!page) return;
        swap(page);
      } catch {} // it tries again
    }
  };

  // The log.
  const follow = async (log) => {
    const lines = $("[data-lines]", log), said = $("[data-said]", log), state = log.dataset;
    const say = (text) => ((said.textContent = text), (said.hidden = !text));
    const end = () => innerHeight + scrollY > document.documentElement.scrollHeight - 8;
    const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    const button = make("button", "", { type: "button" });
    let following, top = scrollY;
    const set = (on) => {
      following = on && button.isConnected;
      button.textContent = following ? "✓ Following" : "Follow";
    };
    if (state.from >= 0 && !("done" in state)) $(".logbar", log).append(button);
    set(end() && !location.hash);
    button.addEventListener("click", () => {
      set(!following);
      if (following) toEnd();
    });
    // A page that becomes shorter scrolls by itself, but stays at its end.
    addEventListener("scroll", () => {
      if (!end() && scrollY < top) set(false);
      else if (end() && scrollY > top) set(true);
      top = scrollY;
    });

    const count = (step) => {
      $("[data-lines-of]", step).textContent = many($$(".lines > div", step).length);
    };
    const last = (name) => $$("details[data-step]", lines).findLast((d) => name === undefined || d.dataset.step === name);
    const add = (answer) => {
      for (const head of $$("[data-heads] > summary", answer)) {
        const step = last(head.dataset.step);
        if (!step) continue;
        $("summary", step).replaceChildren(...head.childNodes);
        count(step);
      }
      for (const step of $$("details[data-step]", answer)) {
        const before = last();
        if (before?.dataset.step === step.dataset.step) {
          $(".lines", before).append(...$$(".lines > div", step));
          count(before);
          continue;
        }
        // Fold successful steps, unless they are being read.
        if (following && before && !$("summary .bad", before)) before.open = false;
        lines.append(step);
      }
      const all = $$(".lines > div", lines), over = all.splice(0, Math.max(0, all.length - mostLines));
      for (const line of over) line.remove();
      if (over.length) {
        const earlier = $("[data-earlier]", log);
        earlier.hidden = false;
        $("a", earlier).href = $("a", all[0]).href;
        for (const step of $$("details[data-step]", lines)) if (!$(".lines > div", step)) step.remove();
      }
      if (all.length) $("[data-missing]", log)?.remove();
    };
    for (let failed = 0; state.again;) {
      await sleep(Number(state.again));
      await shown();
      try {
        const page = await ask(`${state.live}?${new URLSearchParams({ attempt: state.attempt, from: state.from, seen: state.seen })}`);
        if (!page) return;
        const answer = $("#live", page), next = answer.dataset;
        if ("latest" in state && state.attempt !== "0" && Number(next.last) > Number(state.attempt) && state.from >= 0) {
          location.reload(); // another attempt has begun
          return;
        }
        swap(answer);
        if (state.from >= 0) {
          add(answer);
          state.attempt = next.attempt;
          state.from = next.from;
          $("[data-count]", log).textContent = many(Number(next.from));
        }
        state.seen = next.seen;
        state.again = next.again;
        if (following) toEnd();
        if ($("[data-done]", answer)) {
          button.remove();
          set(false);
        }
        say("");
        failed = 0;
      } catch (err) {
        if (err.final) return say("This page is out of date. Load it again.");
        say("Connection lost, trying again.");
        await sleep(Math.min(1000 * 2 ** failed++, 20000) * (0.5 + Math.random() / 2));
      }
    }
  };

  // Keys.
  const keys = [["/", "Find"], ["j", "Next row"], ["k", "Row before"], ["Enter", "Open the row"], ["a", "To the approval"], ["c", "To the cancellation"], ["?", "This list"]];
  const help = () => {
    const d = make("dialog", "", { ariaLabel: "Keys" }), list = make("dl", ""), form = make("form", "", { method: "dialog" });
    for (const [key, what] of keys) list.append(make("dt", key), make("dd", what));
    form.append(make("button", "Close"));
    d.append(make("h2", "Keys"), list, form);
    d.addEventListener("close", () => d.remove());
    document.body.append(d);
    d.showModal();
  };
  const move = (by) => {
    const rows = $$("main tr").filter((r) => $("td a", r) && r.offsetParent);
    if (!rows.length) return;
    const at = rows.findIndex((r) => r.classList.contains("here"));
    const to = rows[Math.max(0, Math.min(rows.length - 1, at + by))];
    rows[at]?.classList.remove("here");
    to.classList.add("here");
    to.scrollIntoView({ block: "nearest" });
  };
  const act = (key) => {
    const details = $(`main details[data-key="${key}"]`);
    if (!details) return;
    details.open = true;
    $("input:not([type=hidden]), button", details).focus();
  };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing || $("dialog[open]")) return;
    if (e.target.closest("input, textarea, select, [contenteditable]")) return;
    const here = e.target.closest("a, button, summary") ? null : $("tr.here td a");
    const does = { "/": () => $(".find input")?.focus(), j: () => move(1), k: () => move(-1), a: () => act("a"), c: () => act("c"), "?": help, Enter: here && (() => here.click()) }[e.key];
    if (!does) return;
    e.preventDefault();
    does();
  });

  // Begin.
  times(document);
  setInterval(() => document.hidden || times(document), 5000);
  $("form[data-once]")?.requestSubmit();
  const asked = location.hash.startsWith("#L") && document.getElementById(location.hash.slice(1));
  if (asked) asked.closest("details").open = true;
  const log = $("#log[data-live]"), every = Number(document.body.dataset.every);
  if (log) follow(log);
  else if (every > 0) refresh(every * 1000);
})();
