// Heat maps: one row per client, or per several clients.

const LABELLED_ROWS = 40;
const isAveraged = (partition) => partition.clients > partition.rows.length;
const isCrowded = (partition) => partition.rows.length > LABELLED_ROWS;

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

function heatMap(partition, { title, axis, columns, ticks, ...map }, marks) {
  const rows = partition.rows;
  const cells = {
    type: "heatmap", hoverongaps: false, y: rows.map((_, row) => row),
    xgap: columns.length > 60 ? 0 : 1, ygap: rows.length > 60 ? 0 : 1,
    colorbar: { thickness: 12, outlinewidth: 0, tickfont: { size: 11 }, len: 1, xpad: 8 },
    customdata: rows.map((row) => columns.map((column) => [escapeHtml(row), column])),
    ...map,
  };
  const marked = markers(partition, marks), margin = marked.length ? 0.05 : 0;
  const height = Math.min(640, Math.max(280, 110 + 17 * rows.length));
  return {
    title, height, traces: [cells, ...marked],
    layout: layout(axis, "", {
      hovermode: "closest", shapes: groupBorders(partition),
      yaxis: { ...rowAxis(partition, marks), anchor: "free", position: 0 },
      xaxis: { showgrid: false, domain: [margin, 1], ...ticks },
      xaxis2: { visible: false, fixedrange: true, range: [-2, 2], domain: [0, margin || 1] },
    }),
  };
}

function colourScale({ name, scale }, run) {
  if (scale === "signed") return { colorscale: "RdBu", zmin: -1, zmax: 1 };
  if (scale === "around-one") return { colorscale: "RdBu", zmin: 0, zmax: 2 };
  let highest = 0;
  for (const { values } of scale === "all-runs" ? data.runs : [run]) {
    for (const row of values[name] ?? []) for (const value of row) highest = Math.max(highest, value);
  }
  return { colorscale: "Viridis", zmin: 0, zmax: highest || 1 };
}

const chosenQuantity = () => data.quantities.find(({ name }) => name === byId("quantity").value);

function describeClients(run, partition) {
  const { rows, clients, groups } = partition;
  const quantity = chosenQuantity();
  const notes = [
    quantity.name in run.values ? quantity.note : "No values: the run was not diagnosed, or the quantity is not defined for its method.",
    groups.length ? "Rows: clients, sorted by group." : "Rows: clients.",
    "Empty: the client was not in the cohort, or its upload was dropped (weight 0).",
  ];
  if (isAveraged(partition) || run.width > 1) {
    const cells = `${rows.length} × ${run.columns.length} cells`;
    notes.push(`${plural(clients, "client")} over ${plural(run.rounds, "round")}, averaged into ${cells}.`);
  }
  if (run.expelled.length) notes.push("✕: expelled.");
  if (run.freeloaders.length) notes.push(isCrowded(partition) ? "▸: freeloader." : "⚑: freeloader.");
  return notes.filter(Boolean).join(" ");
}

function clientFigure() {
  const run = data.runs[state.run], partition = data.partitions[run.partition];
  const quantity = chosenQuantity();
  const clients = `client${isAveraged(partition) ? "s" : ""} %{customdata[0]}`;
  const rounds = `round${run.width > 1 ? "s" : ""} %{customdata[1]}`;
  return heatMap(partition, {
    title: `${quantity.title}, ${data.methods[run.method].name}, ${run.name}`, axis: "round", columns: run.columns,
    ...colourScale(quantity, run), ticks: run.rounds < 10 ? { dtick: 1 } : {},
    z: run.values[quantity.name] ?? partition.rows.map(() => run.columns.map(() => null)), x: run.columns.map((_, column) => (column + 0.5) * run.width + 0.5),
    hovertemplate: `${clients}, ${rounds}<br>${quantity.symbol} %{z:.3g}<extra></extra>`,
  }, run);
}

function describeLabels(partition) {
  if (partition.labels.length === 0) return "Unknown: nodes do not disclose their labels.";
  if (!isAveraged(partition)) return "Training samples of each label.";
  return `Training samples per client, averaged over ${plural(partition.clients, "client")}.`;
}

function labelFigure() {
  const partition = data.partitions[state.partition], labels = partition.labels;
  const columns = labels.map((_, label) => label);
  const ticks = columns.filter((label) => label % Math.ceil(labels.length / 20) === 0);
  const clients = `client${isAveraged(partition) ? "s" : ""} %{customdata[0]}`;
  return heatMap(partition, {
    title: `labels, ${partition.name}`, axis: "label", columns: labels, colorscale: theme().counts, zmin: 0,
    z: partition.counts, x: columns,
    ticks: { tickvals: ticks, ticktext: ticks.map((label) => labels[label]) },
    hovertemplate: `${clients}, label %{customdata[1]}<br>%{z:.4~g} samples<extra></extra>`,
  }, { expelled: [], freeloaders: [] });
}
