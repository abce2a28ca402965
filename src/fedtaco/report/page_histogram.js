// Histogram: how many clients have which accuracy on their own samples.

function histogramFigure() {
  const { method, models } = data.histograms.find(({ method: index }) => index === Number(byId("own-method").value));
  const percent = (fraction) => `${Math.round(100 * fraction)} %`;
  const traces = models.map(({ name, counts }, place) => ({
    type: "bar", name, y: counts, x: counts.map((_, bin) => (bin + 0.5) / counts.length),
    marker: { color: place === models.length - 1 ? colour(method) : theme().muted },
    customdata: counts.map((_, bin) => [percent(bin / counts.length), percent((bin + 1) / counts.length)]),
    hovertemplate: `${name}: %{y} clients from %{customdata[0]} to %{customdata[1]}<extra></extra>`,
  }));
  return {
    title: `accuracy on clients' own samples, ${data.methods[method].name}`, traces,
    layout: layout("accuracy on the client's own samples", "clients", {
      barmode: "group", bargap: 0.15, hovermode: "closest", showlegend: models.length > 1,
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
      xaxis: { range: [0, 1], tickformat: ".0%", showgrid: false }, yaxis: { rangemode: "tozero" },
    }),
  };
}
