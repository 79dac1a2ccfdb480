"use strict";
// The attention explorer: choose model, example, layer, head and query; see mean, deviation and prior of the weights, or one sample after another.
for (const root of document.querySelectorAll(".explorer")) {
  const models = JSON.parse(root.querySelector("script").textContent);
  const control = (name) => root.querySelector(`[name=${name}]`);
  const status = root.querySelector("[role=status]");
  const body = root.querySelector("tbody");
  const patches = root.querySelector(".patches");
  const sentence = root.querySelector(".sentence");
  let sample = -1; // -1: the mean

  const fill = (select, names) => {
    const before = select.selectedIndex;
    select.replaceChildren(...names.map((name, place) => new Option(name, place)));
    select.selectedIndex = before >= 0 && before < names.length ? before : 0;
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
      button.addEventListener("click", () => { control("query").value = place; draw(); });
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
    const top = values.indexOf(Math.max(...values));
    const what = sample < 0 ? `mean of ${layer.samples} samples` : `sample ${sample + 1} of ${layer.samples}`;
    status.textContent = `${example.title}. Layer ${layer.name}, head ${head + 1}, query ${query + 1} (${names[query] ?? ""}), ${what}: `
      + `most weight on ${names[top]}, ${values[top].toFixed(3)}; the prior gives it ${prior[top].toFixed(3)}.`;
  };
  const next = (step) => {
    const { layer } = chosen();
    sample = (sample + 1 + step + layer.samples + 1) % (layer.samples + 1) - 1;
    draw();
  };
  fill(control("model"), models.map((model) => model.name));
  refill();
  draw();
  for (const name of ["model", "example", "layer", "head"]) control(name).addEventListener("change", () => { refill(); draw(); });
  control("query").addEventListener("input", draw);
  control("next").addEventListener("click", () => next(1));
  control("mean").addEventListener("click", () => { sample = -1; draw(); });
  root.addEventListener("keydown", (event) => {
    if (event.target.matches("select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "n") next(1);
    if (event.key === "p") next(-1);
    if (event.key === "m") { sample = -1; draw(); }
  });
}
