"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const at = (id) => document.getElementById(id);

  // Okabe and Ito's colours, which colour-blind readers can tell apart, set off from each ground.
  const THEMES = {
    light: {
      ink: "#1d2430", soft: "#566070", line: "#dce1e8", panel: "#ffffff", ground: "#ffffff",
      counts: [[0, "#f1f4f7"], [0.5, "#6fb0dc"], [1, "#08416f"]],
      colours: ["#0072b2", "#d55e00", "#009e73", "#b5588f", "#3d3d3d", "#c98a00", "#4aa8e0"],
    },
    dark: {
      ink: "#e4e8ee", soft: "#a3adbb", line: "#323b47", panel: "#1c222a", ground: "#14181e",
      counts: [[0, "#20262f"], [0.5, "#3b82b8"], [1, "#cdeaff"]],
      colours: ["#3f9fe0", "#f07a28", "#2cc79a", "#e09bc4", "#d8d8d8", "#e6b422", "#8fd0f7"],
    },
  };
  const DASHES = ["solid", "dash", "dot", "dashdot"];
  const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "cross", "star"];
  const QUANTITIES = { alpha: "α", cosine: "cosine", norm: "norm", weight: "weight" };
  const LABELLED_ROWS = 40;
  const touch = matchMedia("(pointer: coarse)").matches;
  const system = matchMedia("(prefers-color-scheme: dark)");

  const state = { dark: system.matches, chosen: false, hidden: new Set(), run: 0, partition: 0 };
  const theme = () => THEMES[state.dark ? "dark" : "light"];
  const colour = (place) => theme().colours[place % theme().colours.length];
  const dash = (place) => DASHES[Math.floor(place / theme().colours.length) % DASHES.length];
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function layout(x, y, more) {
    const { ink, soft, line, panel } = theme();
    const axis = (title) => ({
      title: { text: title, font: { color: soft }, standoff: 8 },
      gridcolor: line, linecolor: line, zeroline: false, automargin: true, fixedrange: touch,
    });
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 13, color: ink },
      hoverlabel: { bgcolor: panel, bordercolor: line, font: { color: ink }, namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: soft, activecolor: ink },
      margin: { l: 48, r: 12, t: 30, b: 40 }, showlegend: false, dragmode: touch ? false : "zoom",
      ...more,
      xaxis: { ...axis(x), ...more.xaxis }, yaxis: { ...axis(y), ...more.yaxis },
    };
  }

  function paint(id, traces, arrangement) {
    const node = at(id);
    const settings = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };
    return node.data
      ? Plotly.react(node, traces, arrangement, settings)
      : Plotly.newPlot(node, traces, arrangement, settings);
  }

  // Accuracy

  function lines(axis) {
    return data.methods.flatMap((method, place) => {
      const curve = method.curves[at("measure").value];
      if (!curve || !curve[axis]) return [];
      const shared = { visible: !state.hidden.has(place), legendgroup: method.name, mode: "lines" };
      const [x, { low, high }] = [curve[axis], curve];
      const band = {
        ...shared, name: `${plain(method.name)}, seeds`,
        x: [...x, ...[...x].reverse()], y: [...high, ...[...low].reverse()],
        fill: "toself", fillcolor: `${colour(place)}22`, line: { width: 0 }, hoverinfo: "skip",
      };
      const mean = {
        ...shared, name: plain(method.name), meta: place, x, y: curve.mean,
        mode: x.length < 40 ? "lines+markers" : "lines",
        line: { color: colour(place), dash: dash(place), width: 2.25 },
        marker: { symbol: SYMBOLS[place % SYMBOLS.length], size: 5 },
        customdata: curve.rounds.map((round, index) => [round, low[index], high[index]]),
        hovertemplate: axis === "rounds"
          ? (curve.seeds[0] > 1 ? "%{y:.1%} (%{customdata[1]:.1%} to %{customdata[2]:.1%})" : "%{y:.1%}")
          : "%{y:.1%} after %{x:.4~r} s, round %{customdata[0]}",
      };
      return [band, mean];
    });
  }

  const across = (y, line) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line });

  function target() {
    if (data.target === null) return {};
    const { soft } = theme();
    return {
      shapes: [across(data.target, { color: soft, width: 1, dash: "dot" })],
      annotations: [{
        xref: "paper", x: 0, y: data.target, xanchor: "left", yanchor: "bottom", showarrow: false,
        text: `target ${Math.round(1000 * data.target) / 10} %`, font: { color: soft, size: 12 },
      }],
    };
  }

  function drawCurves() {
    const measure = at("measure").value === "accuracy" ? "test accuracy" : "held-out accuracy";
    const arranged = (x, hovermode) => layout(x, measure, {
      ...target(), hovermode,
      xaxis: { rangemode: "tozero" }, yaxis: { tickformat: ".0%" },
    });
    const drawn = [paint("rounds", lines("rounds"), arranged("round", "x unified"))];
    if (!at("seconds").hidden) drawn.push(paint("seconds", lines("seconds"), arranged("client seconds", "closest")));
    return Promise.all(drawn);
  }

  // Heat maps: a row a client, or several

  const isAveraged = (partition) => partition.clients > partition.rows.length;
  const isCrowded = (partition) => partition.rows.length > LABELLED_ROWS;
  const count = (number) => number.toLocaleString("en");

  function rowAxis(partition, marks) {
    const { rows, groups } = partition;
    const mark = (row) => (marks.freeloaders.includes(row) ? " ⚑" : "") + (marks.expelled.includes(row) ? " ✕" : "");
    let places = rows.map((_, row) => row).filter((row) => row % Math.ceil(rows.length / LABELLED_ROWS) === 0);
    let names = places.map((row) => plain(rows[row]) + mark(row));
    if (isCrowded(partition) && groups.length) {
      let first = 0;
      places = groups.map(([, own]) => (first += own) - own / 2 - 0.5);
      names = groups.map(([name, , clients]) => `${plain(name)} (${count(clients)})`);
    }
    return { tickvals: places, ticktext: names, range: [rows.length - 0.5, -0.5], showgrid: false, ticks: "" };
  }

  function groupBorders({ groups }) {
    let first = 0;
    return groups.slice(0, -1).map(([, own]) => across((first += own) - 0.5, { color: theme().ground, width: 5 }));
  }

  function markers(partition, marks) {
    const mark = ([rows, symbol, name, x]) => ({
      type: "scatter", mode: "markers", name, x: rows.map(() => x), y: rows, xaxis: "x2",
      marker: { symbol, size: 8, color: theme().ink }, hovertemplate: `${name}: %{customdata}<extra></extra>`,
      customdata: rows.map((row) => plain(partition.rows[row])),
    });
    const kinds = [
      [marks.expelled, "x-thin-open", "expelled", 1],
      [marks.freeloaders, "triangle-right", "freeloader", -1],
    ];
    return isCrowded(partition) ? kinds.filter(([rows]) => rows.length).map(mark) : [];
  }

  function heatMap(id, partition, { title, columns, ticks, ...map }, marks) {
    const rows = partition.rows;
    at(id).style.height = `${Math.min(640, Math.max(280, 110 + 17 * rows.length))}px`;
    const cells = {
      type: "heatmap", hoverongaps: false, y: rows.map((_, row) => row),
      xgap: columns.length > 60 ? 0 : 1, ygap: rows.length > 60 ? 0 : 1,
      colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11 }, len: 1, xpad: 8 },
      customdata: rows.map((row) => columns.map((column) => [plain(row), column])),
      ...map,
    };
    const marked = markers(partition, marks), margin = marked.length ? 0.05 : 0;
    return paint(id, [cells, ...marked], layout(title, "", {
      hovermode: "closest", shapes: groupBorders(partition),
      yaxis: { ...rowAxis(partition, marks), anchor: "free", position: 0 },
      xaxis: { showgrid: false, domain: [margin, 1], ...ticks },
      xaxis2: { visible: false, fixedrange: true, range: [-2, 2], domain: [0, margin || 1] },
    }));
  }

  function scale(quantity, run) {
    if (quantity === "cosine") return { colorscale: "RdBu", zmin: -1, zmax: 1 };
    let highest = 0;
    for (const { grids } of quantity === "alpha" ? data.runs : [run]) {
      for (const row of grids[quantity]) for (const value of row) highest = Math.max(highest, value);
    }
    return { colorscale: "Viridis", zmin: 0, zmax: highest || 1 };
  }

  function aboutClients(run, partition) {
    const { rows, clients, groups } = partition;
    const notes = [
      groups.length ? "Rows are clients, by group." : "Rows are clients.",
      "Empty: the client was not asked, or its upload was left out (it then weighs 0).",
    ];
    if (isAveraged(partition) || run.width > 1) {
      const cells = `${rows.length} × ${run.columns.length} cells`;
      notes.push(`${count(clients)} clients over ${count(run.rounds)} rounds, averaged into ${cells}.`);
    }
    if (run.expelled.length) notes.push("✕: expelled.");
    if (run.freeloaders.length) notes.push(isCrowded(partition) ? "▸: freeloader." : "⚑: freeloader.");
    return notes.join(" ");
  }

  function drawClients() {
    const run = data.runs[state.run], partition = data.partitions[run.partition], quantity = at("quantity");
    const whose = `client${isAveraged(partition) ? "s" : ""} %{customdata[0]}`;
    const when = `round${run.width > 1 ? "s" : ""} %{customdata[1]}`;
    const what = `${quantity.selectedOptions[0].text}, ${data.methods[run.method].name}, ${run.name}`;
    at("heat-note").textContent = aboutClients(run, partition);
    at("heat").setAttribute("aria-label", `Heat map of ${partition.clients} clients over rounds: ${what}`);
    return heatMap("heat", partition, {
      title: "round", columns: run.columns, ...scale(quantity.value, run),
      z: run.grids[quantity.value], x: run.columns.map((_, column) => (column + 0.5) * run.width + 0.5),
      hovertemplate: `${whose}, ${when}<br>${QUANTITIES[quantity.value]} %{z:.3g}<extra></extra>`,
    }, run);
  }

  function drawLabels() {
    const partition = data.partitions[state.partition], labels = partition.labels;
    at("labels").hidden = labels.length === 0;
    if (labels.length === 0) {
      at("labels-note").textContent = "Not known: what a node holds does not leave it.";
      return Promise.resolve();
    }
    const averaged = `Training samples a client, averaged over ${count(partition.clients)} clients.`;
    at("labels-note").textContent = isAveraged(partition) ? averaged : "Training samples of each label.";
    const places = labels.map((_, label) => label);
    const shown = places.filter((label) => label % Math.ceil(labels.length / 20) === 0);
    const whose = `client${isAveraged(partition) ? "s" : ""} %{customdata[0]}, label %{customdata[1]}`;
    return heatMap("labels", partition, {
      title: "label", columns: labels, colorscale: theme().counts, zmin: 0, z: partition.counts, x: places,
      ticks: { tickvals: shown, ticktext: shown.map((label) => labels[label]) },
      hovertemplate: `${whose}<br>%{z:.4~g} samples<extra></extra>`,
    }, { expelled: [], freeloaders: [] });
  }

  // Controls

  function colourMethods() {
    for (const node of document.querySelectorAll("[data-method]")) {
      const place = Number(node.dataset.method);
      node.style.setProperty("--method", colour(place));
      if (node.tagName === "BUTTON") node.setAttribute("aria-pressed", String(!state.hidden.has(place)));
      else node.classList.toggle("off", state.hidden.has(place));
    }
    at("theme").setAttribute("aria-pressed", String(state.dark));
  }

  const drawHeatMaps = () => Promise.all([drawClients(), drawLabels()]);

  function drawAll() {
    if (state.chosen) root.dataset.theme = state.dark ? "dark" : "light";
    colourMethods();
    return Promise.all([drawCurves(), drawHeatMaps()]);
  }

  /** The curves are shown before the heat maps, which are below them, are drawn. */
  async function open() {
    const stamp = (event) => { root.dataset[event] = String(Math.round(performance.now())); };
    colourMethods();
    await drawCurves();
    await new Promise((shown) => { requestAnimationFrame(() => setTimeout(shown)); });
    stamp("shown");
    await drawHeatMaps();
    stamp("drawn");
  }

  function show(hidden) {
    state.hidden = new Set(hidden);
    colourMethods();
    drawCurves();
  }

  function fill(select, entries, chosen) {
    select.replaceChildren(...entries.map(([value, text]) => new Option(text, value, false, value === chosen)));
  }

  function offerRuns(method) {
    const own = data.runs.map((run, place) => [place, run]).filter(([, run]) => run.method === method);
    state.run = own[0][0];
    fill(at("run"), own.map(([place, run]) => [place, run.name]), state.run);
  }

  for (const button of document.querySelectorAll("button.method")) {
    button.addEventListener("click", () => {
      const place = Number(button.dataset.method), hidden = new Set(state.hidden);
      if (!hidden.delete(place)) hidden.add(place);
      show(hidden);
    });
  }
  at("all").addEventListener("click", () => show([]));
  at("none").addEventListener("click", () => show(data.methods.keys()));
  at("theme").addEventListener("click", () => {
    Object.assign(state, { dark: !state.dark, chosen: true });
    drawAll();
  });
  system.addEventListener("change", () => {
    if (!state.chosen) state.dark = system.matches;
    drawAll();
  });
  at("measure").addEventListener("change", drawCurves);
  at("quantity").addEventListener("change", drawClients);
  at("method").addEventListener("change", (event) => {
    offerRuns(Number(event.target.value));
    drawClients();
  });
  at("run").addEventListener("change", (event) => {
    state.run = Number(event.target.value);
    drawClients();
  });
  at("partition").addEventListener("change", (event) => {
    state.partition = Number(event.target.value);
    drawLabels();
  });

  fill(at("method"), data.methods.map((method, place) => [place, method.name]), 0);
  fill(at("partition"), data.partitions.map((partition, place) => [place, partition.name]), 0);
  offerRuns(0);
  open();
})();
