// Drawing, downloads and controls.

const FIGURES = {
  first: () => curveFigure("first"), second: () => curveFigure("second"), own: histogramFigure, clients: clientFigure,
  labels: labelFigure,
};

function draw(id) {
  if (byId(id).hidden) return Promise.resolve();
  const { traces, layout: chartLayout, height, title } = FIGURES[id]();
  if (height) byId(id).style.height = `${height}px`;
  byId(id).setAttribute("aria-label", `${byId(id).dataset.kind}: ${title}`);
  const settings = { responsive: true, displaylogo: false, modeBarButtons: [["resetScale2d"]] };
  return (byId(id).data ? Plotly.react : Plotly.newPlot)(byId(id), traces, chartLayout, settings);
}

function drawCurves(charts = ["first", "second"]) {
  for (const chart of charts.filter((id) => !byId(id).hidden)) {
    byId(`${chart}-seconds`).hidden = viewOf(chart).axis !== "seconds";
  }
  return Promise.all(charts.map(draw));
}

function drawClients() {
  const run = data.runs[state.run];
  byId("clients-note").textContent = describeClients(run, data.partitions[run.partition]);
  return draw("clients");
}

function drawLabels() {
  const partition = data.partitions[state.partition];
  byId("labels").hidden = partition.labels.length === 0;
  byId("labels-note").textContent = describeLabels(partition);
  return draw("labels");
}

const drawBelow = () => Promise.all([draw("own"), drawClients(), drawLabels()]);

// Downloads

const fileName = (title) => title.normalize("NFKD").replace(/[^\w.=-]+/g, "-").replace(/^-+|-+$/g, "");

/** Download a chart as it looks on white paper, with a legend if it has lines. */
function saveChart(id) {
  const { dark } = state;
  state.dark = false;
  const { traces, layout: chartLayout, height, title } = FIGURES[id]();
  state.dark = dark;
  const isCurve = id === "first" || id === "second";
  const showlegend = isCurve || chartLayout.showlegend;
  const figure = { data: traces, layout: { ...chartLayout, showlegend, paper_bgcolor: "#ffffff" } };
  const size = { width: isCurve ? 720 : 900, height: height ?? 420 };
  return Plotly.downloadImage(figure, { format: "svg", filename: fileName(title), ...size });
}

function saveTable(suffix) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data.tables[suffix]], { type: "text/plain;charset=utf-8" }));
  link.download = `results.${suffix}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Controls

function showState() {
  for (const node of document.querySelectorAll("[data-method]")) {
    const index = Number(node.dataset.method);
    node.style.setProperty("--method", colour(index));
    if (node.tagName === "BUTTON") node.setAttribute("aria-pressed", String(!state.hidden.has(index)));
    else node.classList.toggle("off", state.hidden.has(index));
  }
  byId("theme").textContent = state.dark ? "Light mode" : "Dark mode";
}

function drawAll() {
  if (state.themeChosen) document.documentElement.dataset.theme = state.dark ? "dark" : "light";
  showState();
  return Promise.all([drawCurves(), drawBelow()]);
}

function hideMethods(hidden) {
  state.hidden = new Set(hidden);
  showState();
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

/** Show accuracy over rounds and, beside it, over client seconds, or the loss if seconds were not measured. */
function offerViews() {
  const entries = views.map(({ id, title }) => [id, capitalize(title)]);
  const beside = ["accuracy-seconds", "loss-rounds"].find((id) => views.some((view) => view.id === id));
  for (const [chart, id] of [["first", views[0]?.id], ["second", beside ?? views[1]?.id]]) {
    fillMenu(`${chart}-view`, entries);
    byId(`${chart}-section`).hidden = byId(chart).hidden = id === undefined;
    byId(`${chart}-view`).value = id;
  }
}

/** Show the curves before drawing the other charts, which are further down. */
async function open() {
  const stamp = (event) => { document.documentElement.dataset[event] = String(Math.round(performance.now())); };
  showState();
  await drawCurves();
  await new Promise((shown) => { requestAnimationFrame(() => setTimeout(shown)); });
  stamp("shown");
  await drawBelow();
  stamp("drawn");
}

for (const button of document.querySelectorAll("button.method")) {
  button.addEventListener("click", () => {
    const index = Number(button.dataset.method), hidden = new Set(state.hidden);
    if (!hidden.delete(index)) hidden.add(index);
    hideMethods(hidden);
  });
}
for (const button of document.querySelectorAll("[data-save]")) {
  button.addEventListener("click", () => saveChart(button.dataset.save));
}
for (const button of document.querySelectorAll("[data-table]")) {
  button.addEventListener("click", () => saveTable(button.dataset.table));
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
onSelect("first-view", () => drawCurves(["first"]));
onSelect("second-view", () => drawCurves(["second"]));
onSelect("own-method", () => draw("own"));
onSelect("quantity", drawClients);
onSelect("method", (value) => { offerRuns(Number(value)); drawClients(); });
onSelect("run", (value) => { state.run = Number(value); drawClients(); });
onSelect("partition", (value) => { state.partition = Number(value); drawLabels(); });

fillMenu("own-method", data.histograms.map(({ method }) => [method, data.methods[method].name]));
fillMenu("quantity", data.quantities.map(({ name, title }) => [name, title]));
fillMenu("method", data.methods.map((method, index) => [index, method.name]));
fillMenu("partition", data.partitions.map((partition, index) => [index, partition.name]));
offerViews();
offerRuns(0);
open();
