// Draws counts over time as steps. The data stand in the page; a renewed page brings new ones.
"use strict";

(() => {
  const HEIGHT = 220;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const whole = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
  const two = (value) => String(value).padStart(2, "0");

  function short(value) {
    if (value >= 1e6) return `${+(value / 1e6).toFixed(2)}M`;
    return value >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : value.toLocaleString("en");
  }

  function moment(seconds) {
    const at = new Date(seconds * 1000);
    const day = `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
    return `${day} ${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
  }

  // Counts move by little in much: the axis need not begin at nought, but a level line must not look like a storm.
  function range(_u, low, high) {
    if (low === null || high === null) return [0, 4];
    const room = Math.max((high - low) * 0.15, high * 0.02, 2);
    return [Math.max(0, Math.floor(low - room)), Math.ceil(high + room)];
  }

  function options(place, told) {
    const axis = { stroke: colour("--muted"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: colour("--line"), width: 1 } };
    const colours = [colour("--accent"), colour("--second")];
    return {
      width: place.clientWidth,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      padding: [8, 8, 0, 0],
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      // Each line has a scale of its own: who has a million followers may follow forty.
      scales: { x: { time: true }, ...Object.fromEntries(told.lines.map((line) => [line.name, { range }])) },
      axes: [
        { ...axis, size: 30, space: 80, grid: { show: false }, values: [
          [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
          [60, "{HH}:{mm}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
        ] },
        ...told.lines.map((line, index) => ({
          ...axis,
          scale: line.name,
          side: index ? 1 : 3,
          size: 52,
          stroke: told.lines.length > 1 ? colours[index % 2] : axis.stroke,
          grid: index ? { show: false } : axis.grid,
          values: (_u, ticks) => ticks.map((each) => (Number.isInteger(each) ? short(each) : "")),
        })),
      ],
      series: [
        { label: "UTC", value: (_u, at) => (at === null ? "–" : moment(at)) },
        ...told.lines.map((line, index) => ({
          label: line.name,
          scale: line.name,
          stroke: colours[index % 2],
          width: 2,
          spanGaps: true,
          points: { show: told.at.length < 40, size: 5 },
          paths: uPlot.paths.stepped({ align: 1 }),
          value: (_u, value) => whole(value),
        })),
      ],
    };
  }

  for (const place of document.querySelectorAll(".plot[data-of]")) {
    let chart = null;
    let drawn = "";
    const draw = (force) => {
      const text = document.getElementById(place.dataset.of).dataset.chart;
      if (!window.uPlot || !text || (text === drawn && !force)) return;
      const told = JSON.parse(text);
      if (chart) chart.destroy();
      place.classList.remove("none");
      chart = new uPlot(options(place, told), [told.at, ...told.lines.map((line) => line.values)], place);
      drawn = text;
    };
    draw(true);
    new ResizeObserver(() => chart && chart.setSize({ width: place.clientWidth, height: HEIGHT })).observe(place);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
    document.body.addEventListener("htmx:afterSettle", () => draw(false));
  }
})();
