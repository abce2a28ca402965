// The data of the page, its state, its colours, and the layout that all charts share.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

const THEMES = {
  light: {
    text: "#1d2430", muted: "#566070", line: "#dce1e8", panel: "#ffffff", background: "#ffffff",
    counts: [[0, "#f1f4f7"], [0.5, "#6fb0dc"], [1, "#08416f"]],
    colours: data.colours.light,
  },
  dark: {
    text: "#e4e8ee", muted: "#a3adbb", line: "#323b47", panel: "#1c222a", background: "#14181e",
    counts: [[0, "#20262f"], [0.5, "#3b82b8"], [1, "#cdeaff"]],
    colours: data.colours.dark,
  },
};
const DASHES = ["solid", "dash", "dot", "dashdot"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "triangle-down", "star"];
const touch = matchMedia("(pointer: coarse)").matches;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

const state = { dark: prefersDark.matches, themeChosen: false, hidden: new Set(), run: 0, partition: 0 };
const theme = () => THEMES[state.dark ? "dark" : "light"];
const colour = (index) => theme().colours[index % theme().colours.length];
const dash = (index) => DASHES[Math.floor(index / theme().colours.length) % DASHES.length];
const escapeHtml = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const format = (number) => number.toLocaleString("en");
const plural = (number, noun) => `${format(number)} ${noun}${number === 1 ? "" : "s"}`;
const capitalize = (text) => text[0].toUpperCase() + text.slice(1);

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

const horizontalLine = (y, line) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line });
