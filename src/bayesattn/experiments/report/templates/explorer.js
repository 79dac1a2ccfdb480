"use strict";
// The attention explorer: choose model, example, layer, head and query; see mean, deviation and prior of the weights, or one sample after another.
const remembered = {}; // what was chosen last, for an explorer that takes the place of another one
const startExplorer = (root) => {
  root.dataset.started = true;
  const models = JSON.parse(root.querySelector("template").content.textContent);
  const control = (name) => root.querySelector(`[name=${name}]`);
  const status = root.querySelector("[role=status]");
  const body = root.querySelector("tbody");
  const patches = root.querySelector(".patches");
  const sentence = root.querySelector(".sentence");
  const maps = root.querySelectorAll(".maps figure");
  let sample = -1; // -1: the mean

  const fill = (select, names) => {
    const before = select.selectedIndex >= 0 ? select.selectedIndex : remembered[select.name] ?? 0;
    select.replaceChildren(...names.map((name, place) => new Option(name, place)));
    select.selectedIndex = before < names.length ? before : 0;
    select.parentElement.hidden = names.length < 2 && ["model", "example"].includes(select.name);
  };
  const chosen = () => {
    const model = models[control("model").value];
    const example = model.examples[control("example").value];
    const layer = example.layers[control("layer").value];
    return { model, example, layer, head: +control("head").value, query: +control("query").value };
  };
  const numbers = (layer, name) => { // 16-bit shares of one, decoded once
    layer.decoded ??= {};
    layer.decoded[name] ??= new Uint16Array(Uint8Array.from(atob(layer[name]), (c) => c.charCodeAt(0)).buffer);
    return layer.decoded[name];
  };
  const row = (layer, name, head, query, draw = 0) => {
    const start = ((draw * layer.heads + head) * layer.queries + query) * layer.keys;
    return Array.from(numbers(layer, name).subarray(start, start + layer.keys), (share) => share / 65535);
  };
  const table = (layer, head, name, draw = 0) => // of one head, query after query
    Array.from({ length: layer.queries }, (_, query) => row(layer, name, head, query, draw)).flat();
  const refill = () => {
    const model = models[control("model").value ?? 0] ?? models[0];
    fill(control("example"), model.examples.map((example) => example.title));
    const example = model.examples[control("example").selectedIndex];
    fill(control("layer"), example.layers.map((layer) => layer.name));
    const layer = example.layers[control("layer").selectedIndex];
    fill(control("head"), Array.from({ length: layer.heads }, (_, head) => `${head + 1}`));
    control("query").max = layer.queries - 1;
    if (sample >= layer.samples) sample = -1;
  };
  const picture = (example, query, values) => {
    patches.hidden = !example.image;
    if (!example.image) return patches.replaceChildren();
    const { width, height, pixels, grid } = example.image;
    const space = "http://www.w3.org/2000/svg";
    const drawing = document.createElementNS(space, "svg");
    drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    drawing.setAttribute("class", "pixel");
    drawing.setAttribute("aria-hidden", "true");
    pixels.forEach((value, place) => {
      const pixel = document.createElementNS(space, "rect");
      for (const [name, set] of [["x", place % width], ["y", Math.floor(place / width)], ["width", 1.02], ["height", 1.02], ["fill", `rgb(${value},${value},${value})`]])
        pixel.setAttribute(name, set);
      drawing.append(pixel);
    });
    patches.style.gridTemplateColumns = `repeat(${grid[1]}, 1fr)`;
    patches.replaceChildren(drawing, ...chosenBy(query, values));
  };
  const chosenBy = (query, values) => { // a button for each key, as strong as its weight; a click makes it the query
    const highest = Math.max(...values, 1e-9);
    return values.map((value, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.tabIndex = -1; // the slider is the way with the keyboard
      button.style.setProperty("--w", value / highest);
      button.setAttribute("aria-pressed", place === query);
      button.setAttribute("aria-label", `query ${place + 1}`);
      button.addEventListener("click", () => ask(place));
      return button;
    });
  };
  const words = (example, query, values, deviation) => {
    sentence.hidden = Boolean(example.image);
    if (example.image) return sentence.replaceChildren();
    const widest = Math.max(...deviation, 1e-9);
    sentence.replaceChildren(...chosenBy(query, values).map((button, place) => {
      button.style.setProperty("--d", deviation[place] / widest);
      button.textContent = example.names[place];
      button.title = `${values[place].toFixed(3)} ± ${deviation[place].toFixed(3)}`;
      return button;
    }));
  };
  const ask = (place) => { remembered.query = control("query").value = place; draw(); };
  const heat = (figure, words, values, layer, query, names) => { // [query, key], as strong as the value; a click on a row makes it the query
    const [canvas, caption] = figure.children;
    const size = Math.max(1, Math.floor(256 / Math.max(layer.queries, layer.keys)));
    Object.assign(canvas, { width: size * layer.keys, height: size * layer.queries });
    const brush = canvas.getContext("2d");
    const style = getComputedStyle(root);
    const highest = values.reduce((one, other) => Math.max(one, other), 1e-9);
    brush.fillStyle = style.getPropertyValue("--strong");
    values.forEach((value, place) => {
      brush.globalAlpha = value / highest;
      brush.fillRect(size * (place % layer.keys), size * Math.floor(place / layer.keys), size, size);
    });
    brush.globalAlpha = 1;
    brush.strokeStyle = style.getPropertyValue("--accent");
    brush.lineWidth = 2;
    brush.strokeRect(1, size * query, canvas.width - 2, size);
    caption.textContent = `${words}, up to ${highest.toFixed(3)}`;
    canvas.setAttribute("aria-label", `${caption.textContent}; rows are queries, columns are keys`);
    const place = (event) => [[event.offsetY / canvas.clientHeight, layer.queries], [event.offsetX / canvas.clientWidth, layer.keys]]
      .map(([share, count]) => Math.min(count - 1, Math.max(0, Math.floor(share * count))));
    canvas.onclick = (event) => ask(place(event)[0]);
    canvas.onmousemove = (event) => {
      const [row, column] = place(event);
      canvas.title = `${names[row]} → ${names[column]}: ${values[row * layer.keys + column].toFixed(3)}`;
    };
  };
  const draw = () => {
    const { example, layer, head, query } = chosen();
    const mean = row(layer, "mean", head, query);
    const deviation = row(layer, "deviation", head, query);
    const prior = row(layer, "prior", head, query);
    const values = sample < 0 ? mean : row(layer, "draws", head, query, sample);
    const names = example.names;
    const widest = Math.max(...mean.map((value, key) => value + deviation[key]), ...values, ...prior, 1e-9);
    const share = (value) => `${Math.min(100, Math.max(0, 100 * value / widest))}%`;
    body.replaceChildren(...values.map((value, key) => {
      const line = document.createElement("tr");
      const track = Object.assign(document.createElement("div"), { className: "track" });
      const bar = document.createElement("i");
      bar.style.width = share(value);
      const mark = document.createElement("u");
      mark.style.left = share(prior[key]);
      track.append(bar, mark);
      if (sample < 0) {
        const spread = document.createElement("b");
        spread.style.left = share(mean[key] - deviation[key]);
        spread.style.width = `calc(${share(mean[key] + deviation[key])} - ${share(mean[key] - deviation[key])})`;
        track.append(spread);
      }
      const cell = document.createElement("td");
      cell.className = "bar";
      cell.append(track);
      const texts = [names[key], sample < 0 ? `${value.toFixed(3)} ± ${deviation[key].toFixed(3)}` : value.toFixed(3), prior[key].toFixed(3)];
      const [name, figure, before] = texts.map((text) => Object.assign(document.createElement("td"), { textContent: text }));
      line.append(name, cell, figure, before);
      return line;
    }));
    picture(example, query, values);
    words(example, query, values, deviation);
    const all = sample < 0 ? ["mean"] : ["draws", sample];
    heat(maps[0], sample < 0 ? "mean" : `sample ${sample + 1}`, table(layer, head, ...all), layer, query, names);
    heat(maps[1], "standard deviation", table(layer, head, "deviation"), layer, query, names);
    const top = values.indexOf(Math.max(...values));
    const what = sample < 0 ? `mean of ${layer.samples} samples` : `sample ${sample + 1} of ${layer.samples}`;
    status.textContent = `“${example.title}”, layer ${layer.name}, head ${head + 1}, query ${query + 1} (${names[query] ?? ""}), ${what}: `
      + `most weight on ${names[top]}, ${values[top].toFixed(3)}; the prior gives it ${prior[top].toFixed(3)}.`;
  };
  const next = (step) => {
    const { layer } = chosen();
    sample = (sample + 1 + step + layer.samples + 1) % (layer.samples + 1) - 1;
    draw();
  };
  fill(control("model"), models.map((model) => model.name));
  refill();
  control("query").value = remembered.query ?? 0;
  draw();
  for (const name of ["model", "example", "layer", "head"])
    control(name).addEventListener("change", () => { remembered[name] = control(name).selectedIndex; refill(); draw(); });
  control("query").addEventListener("input", () => ask(+control("query").value));
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const redraw = () => root.isConnected ? draw() : scheme.removeEventListener("change", redraw); // the squares have the scheme's colours
  scheme.addEventListener("change", redraw);
  control("next").addEventListener("click", () => next(1));
  control("mean").addEventListener("click", () => { sample = -1; draw(); });
  root.addEventListener("keydown", (event) => {
    if (event.target.matches("select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "n") next(1);
    if (event.key === "p") next(-1);
    if (event.key === "m") { sample = -1; draw(); }
  });
};
const startExplorers = () => document.querySelectorAll(".explorer:not([data-started])").forEach(startExplorer);
startExplorers();
