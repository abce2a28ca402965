"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  // Okabe and Ito's colours, which colour-blind readers can distinguish, adapted to each background.
  const THEMES = {
    light: {
      text: "#1d2430", muted: "#566070", line: "#dce1e8", panel: "#ffffff", background: "#ffffff",
      counts: [[0, "#f1f4f7"], [0.5, "#6fb0dc"], [1, "#08416f"]],
      colours: ["#0072b2", "#d55e00", "#009e73", "#b5588f", "#3d3d3d", "#c98a00", "#4aa8e0"],
    },
    dark: {
      text: "#e4e8ee", muted: "#a3adbb", line: "#323b47", panel: "#1c222a", background: "#14181e",
      counts: [[0, "#20262f"], [0.5, "#3b82b8"], [1, "#cdeaff"]],
      colours: ["#3f9fe0", "#f07a28", "#2cc79a", "#e09bc4", "#d8d8d8", "#e6b422", "#8fd0f7"],
    },
  };
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "cross", "star"];
  const LABELLED_ROWS = 40;
  const touch = matchMedia("(pointer: coarse)").matches;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  const state = { dark: prefersDark.matches, themeChosen: false, hidden: new Set(), run: 0, partition: 0 };
  const theme = () => THEMES[state.dark ? "dark" : "light"];
  const colour = (index) => theme().colours[index % theme().colours.length];
  const dash = (index) => DASHES[Math.floor(index / theme().colours.length) % DASHES.length];
  const escapeHtml = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function layout(x, y, more) {
    const { text, muted, line, panel } = theme();
    const axis = (title) => ({
      title: { text: title, font: { color: muted }, standoff: 8 },
      gridcolor: line, linecolor: line, zeroline: false, automargin: true, fixedrange: touch,
    });
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 13, color: text },
      hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: text }, namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: text },
      margin: { l: 48, r: 12, t: 30, b: 40 }, showlegend: false, dragmode: touch ? false : "zoom",
      ...more,
      xaxis: { ...axis(x), ...more.xaxis }, yaxis: { ...axis(y), ...more.yaxis },
    };
  }

  function draw(id, traces, chartLayout) {
    const settings = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };
    return (byId(id).data ? Plotly.react : Plotly.newPlot)(byId(id), traces, chartLayout, settings);
  }

  // Accuracy

  function curves(axis) {
    return data.methods.flatMap((method, index) => {
      const curve = method.curves[byId("measure").value];
      if (!curve || !curve[axis]) return [];
      const shared = { visible: !state.hidden.has(index), legendgroup: method.name, mode: "lines" };
      const [x, { low, high }] = [curve[axis], curve];
      const band = {
        ...shared, name: `${escapeHtml(method.name)}, seeds`,
        x: [...x, ...[...x].reverse()], y: [...high, ...[...low].reverse()],
        fill: "toself", fillcolor: `${colour(index)}22`, line: { width: 0 }, hoverinfo: "skip",
      };
      const mean = {
        ...shared, name: escapeHtml(method.name), meta: index, x, y: curve.mean,
        mode: x.length < 40 ? "lines+markers" : "lines",
        line: { color: colour(index), dash: dash(index), width: 2.25 },
        marker: { symbol: SYMBOLS[index % SYMBOLS.length], size: 5 },
        customdata: curve.rounds.map((round, point) => [round, low[point], high[point]]),
        hovertemplate: axis === "rounds"
          ? (curve.seeds[0] > 1 ? "%{y:.1%} (%{customdata[1]:.1%} to %{customdata[2]:.1%})" : "%{y:.1%}")
          : "%{y:.1%} after %{x:.4~r} s, round %{customdata[0]}",
      };
      return [band, mean];
    });
  }

  const horizontalLine = (y, line) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line });

  function targetLine() {
    if (data.target === null) return {};
    const { muted } = theme();
    return {
      shapes: [horizontalLine(data.target, { color: muted, width: 1, dash: "dot" })],
      annotations: [{
        xref: "paper", x: 0, y: data.target, xanchor: "left", yanchor: "bottom", showarrow: false,
        text: `target ${Math.round(1000 * data.target) / 10} %`, font: { color: muted, size: 12 },
      }],
    };
  }

  function drawCurves() {
    const measure = byId("measure").value === "accuracy" ? "test accuracy" : "held-out accuracy";
    const chartLayout = (x, hovermode) => layout(x, measure, {
      ...targetLine(), hovermode, xaxis: { rangemode: "tozero" }, yaxis: { tickformat: ".0%" },
    });
    const drawn = [draw("rounds", curves("rounds"), chartLayout("round", "x unified"))];
    if (!byId("seconds").hidden) {
      drawn.push(draw("seconds", curves("seconds"), chartLayout("client seconds", "closest")));
    }
    return Promise.all(drawn);
  }

  // Heat maps: one row per client, or per several clients

  const isAveraged = (partition) => partition.clients > partition.rows.length;
  const isCrowded = (partition) => partition.rows.length > LABELLED_ROWS;
  const format = (number) => number.toLocaleString("en");

  function rowAxis(partition, marks) {
    const { rows, groups } = partition;
    const mark = (row) => (marks.freeloaders.includes(row) ? " ⚑" : "") + (marks.expelled.includes(row) ? " ✕" : "");
    let ticks = rows.map((_, row) => row).filter((row) => row % Math.ceil(rows.length / LABELLED_ROWS) === 0);
    let names = ticks.map((row) => escapeHtml(rows[row]) + mark(row));
    if (isCrowded(partition) && groups.length) {
      let first = 0;
      ticks = groups.map(([, own]) => (first += own) - own / 2 - 0.5);
      names = groups.map(([name, , clients]) => `${escapeHtml(name)} (${format(clients)})`);
    }
    return { tickvals: ticks, ticktext: names, range: [rows.length - 0.5, -0.5], showgrid: false, ticks: "" };
  }

  function groupBorders({ groups }) {
    const line = { color: theme().background, width: 5 };
    let first = 0;
    return groups.slice(0, -1).map(([, own]) => horizontalLine((first += own) - 0.5, line));
  }

  function markers(partition, marks) {
    const mark = ([rows, symbol, name, x]) => ({
      type: "scatter", mode: "markers", name, x: rows.map(() => x), y: rows, xaxis: "x2",
      marker: { symbol, size: 8, color: theme().text }, hovertemplate: `${name}: %{customdata}<extra></extra>`,
      customdata: rows.map((row) => escapeHtml(partition.rows[row])),
    });
    const kinds = [
      [marks.expelled, "x-thin-open", "expelled", 1],
      [marks.freeloaders, "triangle-right", "freeloader", -1],
    ];
    return isCrowded(partition) ? kinds.filter(([rows]) => rows.length).map(mark) : [];
  }

  function heatMap(id, partition, { title, columns, ticks, ...map }, marks) {
    const rows = partition.rows;
    byId(id).style.height = `${Math.min(640, Math.max(280, 110 + 17 * rows.length))}px`;
    const cells = {
      type: "heatmap", hoverongaps: false, y: rows.map((_, row) => row),
      xgap: columns.length > 60 ? 0 : 1, ygap: rows.length > 60 ? 0 : 1,
      colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11 }, len: 1, xpad: 8 },
      customdata: rows.map((row) => columns.map((column) => [escapeHtml(row), column])),
      ...map,
    };
    const marked = markers(partition, marks), margin = marked.length ? 0.05 : 0;
    return draw(id, [cells, ...marked], layout(title, "", {
      hovermode: "closest", shapes: groupBorders(partition),
      yaxis: { ...rowAxis(partition, marks), anchor: "free", position: 0 },
      xaxis: { showgrid: false, domain: [margin, 1], ...ticks },
      xaxis2: { visible: false, fixedrange: true, range: [-2, 2], domain: [0, margin || 1] },
    }));
  }

  function colourScale({ name, scale }, run) {
    if (scale === "signed") return { colorscale: "RdBu", zmin: -1, zmax: 1 };
    let highest = 0;
    for (const { values } of scale === "all-runs" ? data.runs : [run]) {
      for (const row of values[name]) for (const value of row) highest = Math.max(highest, value);
    }
    return { colorscale: "Viridis", zmin: 0, zmax: highest || 1 };
  }

  function describeClients(run, partition) {
    const { rows, clients, groups } = partition;
    const notes = [
      groups.length ? "Rows: clients, sorted by group." : "Rows: clients.",
      "Empty: the client was not in the cohort, or its upload was dropped (weight 0).",
    ];
    if (isAveraged(partition) || run.width > 1) {
      const cells = `${rows.length} × ${run.columns.length} cells`;
      notes.push(`${format(clients)} clients over ${format(run.rounds)} rounds, averaged into ${cells}.`);
    }
    if (run.expelled.length) notes.push("✕: expelled.");
    if (run.freeloaders.length) notes.push(isCrowded(partition) ? "▸: freeloader." : "⚑: freeloader.");
    return notes.join(" ");
  }

  function drawClients() {
    const run = data.runs[state.run], partition = data.partitions[run.partition];
    const quantity = data.quantities.find(({ name }) => name === byId("quantity").value);
    const clients = `client${isAveraged(partition) ? "s" : ""} %{customdata[0]}`;
    const rounds = `round${run.width > 1 ? "s" : ""} %{customdata[1]}`;
    const title = `${quantity.title}, ${data.methods[run.method].name}, ${run.name}`;
    byId("heat-note").textContent = describeClients(run, partition);
    byId("heat").setAttribute("aria-label", `Heat map of ${partition.clients} clients over rounds: ${title}`);
    return heatMap("heat", partition, {
      title: "round", columns: run.columns, ...colourScale(quantity, run), ticks: run.rounds < 10 ? { dtick: 1 } : {},
      z: run.values[quantity.name], x: run.columns.map((_, column) => (column + 0.5) * run.width + 0.5),
      hovertemplate: `${clients}, ${rounds}<br>${quantity.symbol} %{z:.3g}<extra></extra>`,
    }, run);
  }

  function drawLabels() {
    const partition = data.partitions[state.partition], labels = partition.labels;
    byId("labels").hidden = labels.length === 0;
    const averaged = `Training samples per client, averaged over ${format(partition.clients)} clients.`;
    byId("labels-note").textContent = labels.length === 0
      ? "Unknown: nodes do not disclose their labels."
      : isAveraged(partition) ? averaged : "Training samples of each label.";
    if (labels.length === 0) return Promise.resolve();
    const columns = labels.map((_, label) => label);
    const ticks = columns.filter((label) => label % Math.ceil(labels.length / 20) === 0);
    const clients = `client${isAveraged(partition) ? "s" : ""} %{customdata[0]}`;
    return heatMap("labels", partition, {
      title: "label", columns: labels, colorscale: theme().counts, zmin: 0, z: partition.counts, x: columns,
      ticks: { tickvals: ticks, ticktext: ticks.map((label) => labels[label]) },
      hovertemplate: `${clients}, label %{customdata[1]}<br>%{z:.4~g} samples<extra></extra>`,
    }, { expelled: [], freeloaders: [] });
  }

  // Controls

  function colourMethods() {
    for (const node of document.querySelectorAll("[data-method]")) {
      const index = Number(node.dataset.method);
      node.style.setProperty("--method", colour(index));
      if (node.tagName === "BUTTON") node.setAttribute("aria-pressed", String(!state.hidden.has(index)));
      else node.classList.toggle("off", state.hidden.has(index));
    }
    byId("theme").setAttribute("aria-pressed", String(state.dark));
  }

  const drawHeatMaps = () => Promise.all([drawClients(), drawLabels()]);

  function drawAll() {
    if (state.themeChosen) root.dataset.theme = state.dark ? "dark" : "light";
    colourMethods();
    return Promise.all([drawCurves(), drawHeatMaps()]);
  }

  /** Show the curves before drawing the heat maps, which are further down. */
  async function open() {
    const stamp = (event) => { root.dataset[event] = String(Math.round(performance.now())); };
    colourMethods();
    await drawCurves();
    await new Promise((shown) => { requestAnimationFrame(() => setTimeout(shown)); });
    stamp("shown");
    await drawHeatMaps();
    stamp("drawn");
  }

  function hideMethods(hidden) {
    state.hidden = new Set(hidden);
    colourMethods();
    drawCurves();
  }

  function fillMenu(id, entries) {
    byId(id).replaceChildren(...entries.map(([value, text]) => new Option(text, value)));
  }

  function offerRuns(method) {
    const own = data.runs.map((run, index) => [index, run]).filter(([, run]) => run.method === method);
    state.run = own[0][0];
    fillMenu("run", own.map(([index, run]) => [index, run.name]));
  }

  for (const button of document.querySelectorAll("button.method")) {
    button.addEventListener("click", () => {
      const index = Number(button.dataset.method), hidden = new Set(state.hidden);
      if (!hidden.delete(index)) hidden.add(index);
      hideMethods(hidden);
    });
  }
  byId("all").addEventListener("click", () => hideMethods([]));
  byId("none").addEventListener("click", () => hideMethods(data.methods.keys()));
  byId("theme").addEventListener("click", () => {
    Object.assign(state, { dark: !state.dark, themeChosen: true });
    drawAll();
  });
  prefersDark.addEventListener("change", () => {
    if (!state.themeChosen) state.dark = prefersDark.matches;
    drawAll();
  });
  const onSelect = (id, change) => byId(id).addEventListener("change", ({ target }) => change(target.value));
  onSelect("measure", drawCurves);
  onSelect("quantity", drawClients);
  onSelect("method", (value) => { offerRuns(Number(value)); drawClients(); });
  onSelect("run", (value) => { state.run = Number(value); drawClients(); });
  onSelect("partition", (value) => { state.partition = Number(value); drawLabels(); });

  fillMenu("quantity", data.quantities.map(({ name, title }) => [name, title]));
  fillMenu("method", data.methods.map((method, index) => [index, method.name]));
  fillMenu("partition", data.partitions.map((partition, index) => [index, partition.name]));
  offerRuns(0);
  open();
})();
