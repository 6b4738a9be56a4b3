// Marks on a drawing: on a touch screen the first tap shows what a mark tells, the second follows it. Escape hides it.
"use strict";

(() => {
  let shown = null;
  let touched = false;

  function show(place) {
    if (shown && shown !== place) shown.classList.remove("shown");
    shown = place;
    if (place) place.classList.add("shown");
  }

  document.addEventListener("pointerdown", (event) => {
    touched = event.pointerType === "touch";
    const place = event.target.closest(".marks li");
    if (!place) show(null);
  });

  document.addEventListener("click", (event) => {
    const mark = event.target.closest(".marks a");
    if (!mark || !touched || event.detail === 0) return;
    const place = mark.closest("li");
    if (place === shown) return;
    event.preventDefault();
    show(place);
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    show(null);
    const list = document.querySelector(".marks");
    if (list) list.classList.add("hushed");
  });

  for (const name of ["focusin", "pointerover"]) {
    document.addEventListener(name, (event) => {
      const list = event.target.closest && event.target.closest(".marks");
      if (list && event.target.closest("a")) list.classList.remove("hushed");
    });
  }
})();
