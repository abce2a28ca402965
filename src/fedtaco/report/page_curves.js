// Curves: a measure over rounds, client seconds, simulated time or megabytes, one line per method.

const AXES = {
  rounds: "round", seconds: "client seconds", simulated: "simulated time", megabytes: "megabytes sent by clients",
};
const UNITS = { seconds: "s", simulated: "units", megabytes: "MB" };
const LOG_SCALE_FROM = 50; // ratio of the highest to the lowest value

const isDrawn = (measure, axis) => data.methods.some(({ curves }) => curves[measure.name]?.[axis]);
const views = Object.keys(AXES).flatMap((axis) => data.measures.filter((one) => isDrawn(one, axis)).map((measure) => ({
  id: `${measure.name}-${axis}`, title: `${measure.title} over ${axis === "rounds" ? "rounds" : AXES[axis]}`, measure, axis,
})));
const viewOf = (chart) => views.find(({ id }) => id === byId(`${chart}-view`).value);

function curveTraces({ measure, axis }) {
  const number = measure.is_accuracy ? ".1%" : ".4~g";
  return data.methods.flatMap((method, index) => {
    const curve = method.curves[measure.name];
    if (!curve?.[axis]) return [];
    const shared = { visible: !state.hidden.has(index), legendgroup: method.name, mode: "lines" };
    const [x, { low, high }] = [curve[axis], curve];
    const band = {
      ...shared, name: `${escapeHtml(method.name)}, seeds`, showlegend: false,
      x: [...x, ...[...x].reverse()], y: [...high, ...[...low].reverse()],
      fill: "toself", fillcolor: `${colour(index)}22`, line: { width: 0 }, hoverinfo: "skip",
    };
    const range = curve.seeds[0] > 1 ? ` (%{customdata[1]:${number}} to %{customdata[2]:${number}})` : "";
    const mean = {
      ...shared, name: escapeHtml(method.name), meta: index, x, y: curve.mean,
      mode: x.length < 40 ? "lines+markers" : "lines",
      line: { color: colour(index), dash: dash(index), width: 2.25 },
      marker: { symbol: SYMBOLS[index % SYMBOLS.length], size: 5 },
      customdata: curve.rounds.map((round, point) => [round, low[point], high[point]]),
      hovertemplate: axis === "rounds"
        ? `%{y:${number}}${range}`
        : `%{y:${number}} after %{x:.4~r} ${UNITS[axis]}, round %{customdata[0]}`,
    };
    return [band, mean];
  });
}

function targetLine() {
  const { muted } = theme();
  return {
    shapes: [horizontalLine(data.target, { color: muted, width: 1, dash: "dot" })],
    annotations: [{
      xref: "paper", x: 0, y: data.target, xanchor: "left", yanchor: "bottom", showarrow: false,
      text: `target ${Math.round(1000 * data.target) / 10} %`, font: { color: muted, size: 12 },
    }],
  };
}

function valueAxis({ measure }) {
  if (measure.is_accuracy) return { tickformat: ".0%" };
  if (!measure.is_loss) return {};
  const curves = data.methods.flatMap(({ curves: own }) => own[measure.name] ?? []);
  const lows = curves.flatMap(({ low }) => low), highest = Math.max(...curves.flatMap(({ high }) => high));
  const isWide = highest > LOG_SCALE_FROM * Math.min(...lows) && Math.min(...lows) > 0;
  return isWide ? { type: "log", dtick: 1 } : { rangemode: "tozero" };
}

function curveFigure(chart) {
  const view = viewOf(chart);
  const more = {
    ...(view.measure.has_target && data.target !== null ? targetLine() : {}),
    hovermode: view.axis === "rounds" ? "x unified" : "closest",
    xaxis: { rangemode: "tozero", unifiedhovertitle: { text: "round %{x}" } },
    yaxis: valueAxis(view),
  };
  const title = escapeHtml(view.measure.title);
  return { title: view.title, traces: curveTraces(view), layout: layout(AXES[view.axis], title, more) };
}
