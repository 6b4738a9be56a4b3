// Draws posts and credits over time. The data stand in the page; a renewed page brings new ones.
"use strict";

(() => {
  const HEIGHT = 240;
  const place = document.getElementById("posts-chart");
  if (!place || !window.uPlot) return;
  let chart = null;
  let drawn = "";

  const read = () => document.getElementById("posts-data").dataset.chart;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const whole = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
  const two = (value) => String(value).padStart(2, "0");

  function short(value) {
    if (value >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
    return value >= 1e4 ? `${+(value / 1e3).toFixed(1)}k` : value.toLocaleString("en");
  }

  function moment(seconds, width) {
    const at = new Date(seconds * 1000);
    const day = `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
    const time = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}`;
    return width < 60 ? `${time}:${two(at.getUTCSeconds())}` : `${day} ${time}`;
  }

  function tooltip(width) {
    const box = document.createElement("div");
    box.className = "tip";
    box.hidden = true;
    return {
      hooks: {
        init: (u) => u.over.appendChild(box),
        setCursor: (u) => {
          const { left, top, idx } = u.cursor;
          if (idx === null || idx === undefined || left < 0) {
            box.hidden = true;
            return;
          }
          box.replaceChildren();
          for (const line of [
            moment(u.data[0][idx], width),
            `${whole(u.data[1][idx])} posts`,
            `${whole(u.data[2][idx])} credits`,
          ]) {
            const row = document.createElement("div");
            row.textContent = line;
            box.appendChild(row);
          }
          box.hidden = false;
          const beside = left + box.offsetWidth + 14 > u.over.clientWidth ? left - box.offsetWidth - 12 : left + 12;
          box.style.transform = `translate(${Math.max(0, beside)}px, ${Math.max(0, Math.min(top, u.over.clientHeight - box.offsetHeight))}px)`;
        },
      },
    };
  }

  function options(width) {
    const ink = colour("--muted");
    const line = colour("--line");
    const accent = colour("--accent");
    const other = colour("--second");
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: line, width: 1 } };
    return {
      width: place.clientWidth,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      padding: [8, 4, 0, 0],
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      plugins: [tooltip(width)],
      scales: { x: { time: true }, posts: { range: (_u, _low, high) => [0, Math.max(high * 1.1, 4)] }, credits: { range: (_u, _low, high) => [0, Math.max(high * 1.1, 4)] } },
      axes: [
        { ...axis, size: 30, space: 72, grid: { show: false }, values: [
          [86400, "{MMM} {D}", null, null, null, null, null, null, 1],
          [3600, "{HH}:{mm}", "\n{MMM} {D}", null, "\n{MMM} {D}", null, null, null, 1],
          [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
        ] },
        { ...axis, scale: "posts", size: 44, values: (_u, ticks) => ticks.map((each) => (Number.isInteger(each) ? short(each) : "")) },
        { ...axis, scale: "credits", side: 1, size: 48, grid: { show: false }, values: (_u, ticks) => ticks.map((each) => (Number.isInteger(each) ? short(each) : "")) },
      ],
      series: [
        { label: "UTC", value: (_u, at) => (at === null ? "–" : moment(at, width)) },
        { label: "posts", scale: "posts", stroke: accent, fill: accent, width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.82, 24], align: 1 }), value: (_u, value) => whole(value) },
        { label: "credits", scale: "credits", stroke: other, width: 1.5, points: { show: false }, paths: uPlot.paths.linear(), value: (_u, value) => whole(value) },
      ],
      legend: { live: false, markers: { width: 0, fill: (_u, index) => (index === 2 ? other : accent) } },
    };
  }

  function draw(force) {
    const text = read();
    if (text === drawn && !force) return;
    const told = JSON.parse(text);
    const data = [told.at, told.posts, told.credits];
    if (chart && !force && told.width === JSON.parse(drawn).width) {
      chart.setData(data);
    } else {
      if (chart) chart.destroy();
      chart = new uPlot(options(told.width), data, place);
    }
    drawn = text;
  }

  draw(true);
  new ResizeObserver(() => chart.setSize({ width: place.clientWidth, height: HEIGHT })).observe(place);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
  document.body.addEventListener("htmx:afterSettle", () => draw(false));
})();
