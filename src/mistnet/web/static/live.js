// Keeps pages live: listens for news while the page is seen, and asks before what cannot be undone.
"use strict";

(() => {
  const LEAST_PAUSE_MS = 1500;
  const live = document.getElementById("live");
  const pulse = document.getElementById("pulse");
  let stream = null;
  let lastAt = 0;
  let waiting = null;

  // What scripts drew, and what people opened, is theirs.
  if (window.Idiomorph) {
    Idiomorph.defaults.ignoreActiveValue = true;
    Object.assign(Idiomorph.defaults.callbacks, {
      beforeNodeMorphed: (old) => !(old.dataset && "keep" in old.dataset),
      beforeAttributeUpdated: (name, node) =>
        !(name === "open" && node.localName === "details") && !(name === "class" && node.matches(".marks, .marks > li")),
    });
  }

  function show(state, said) {
    if (pulse) {
      pulse.dataset.state = state;
      pulse.title = said;
    }
  }

  function typing() {
    const at = document.activeElement;
    return (live.contains(at) && at.matches("input, select, textarea")) || live.querySelector("[name=id]:checked");
  }

  function refresh() {
    waiting = null;
    if (typing()) {
      waiting = setTimeout(refresh, LEAST_PAUSE_MS);
      return;
    }
    lastAt = Date.now();
    htmx.trigger(document.body, "changed");
  }

  function changed() {
    if (waiting === null) {
      waiting = setTimeout(refresh, Math.max(0, lastAt + LEAST_PAUSE_MS - Date.now()));
    }
  }

  function open() {
    if (stream || document.hidden) return;
    const { seen } = document.getElementById("live").dataset; // renewed with the page
    stream = new EventSource(`/live?seen=${encodeURIComponent(seen)}`);
    stream.addEventListener("open", () => show("on", "Live: this page renews itself"));
    stream.addEventListener("changed", changed);
    stream.addEventListener("error", () => {
      show("off", "Not live: trying to reach mistnet again");
      if (stream && stream.readyState === EventSource.CLOSED) {
        stream = null;
        setTimeout(open, 5000);
      }
    });
  }

  function close() {
    if (stream) stream.close();
    stream = null;
    clearTimeout(waiting);
    waiting = null;
  }

  if (live && window.htmx) {
    open();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        close();
      } else {
        open();
        changed();
      }
    });
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", open);
  }

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });

  document.addEventListener("keydown", (event) => {
    const box = document.getElementById("jump");
    const plain = event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey;
    if (box && plain && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      box.focus();
      box.select();
    }
  });

  // What just happened is said once, not again when the page is reloaded.
  const url = new URL(window.location.href);
  if (url.searchParams.has("did")) {
    url.searchParams.delete("did");
    window.history.replaceState(null, "", url);
  }
})();
