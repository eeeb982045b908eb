// Values where one points, or walks by arrow keys. Each drawing is one stop of the tab key.

const tip = document.querySelector(".tip");
const live = document.querySelector("[aria-live]:not(.words)");

/** Show lines of text on the screen, right of x and below `below` or, without room, above `above`; pairs are a name and its value. */
function showTip(title, pairs, x, [above, below], say) {
  const head = document.createElement("b");
  head.textContent = title;
  tip.replaceChildren(head, ...pairs.map((pair) => {
    const row = document.createElement("div");
    for (const text of pair) {
      const cell = document.createElement("span");
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }));
  tip.hidden = false;
  const width = document.documentElement.clientWidth;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > width ? x - box.width - 16 : x + 16;
  const top = below + 12 + box.height > window.innerHeight ? above - box.height - 12 : below + 12;
  tip.style.left = `${Math.max(Math.min(left, width - box.width - 6), 6) + window.scrollX}px`;
  tip.style.top = `${Math.max(top, 6) + window.scrollY}px`;
  if (say) live.textContent = [title, ...pairs.map((pair) => pair.filter(Boolean).join(": "))].join("; ");
}

/** Let pointer and keys walk: `at` finds what is pointed at, `move` where a key leads, `show` and `hide` draw. */
function walk(drawing, { at, move, show, hide }) {
  let here = null;
  const leave = () => { here = null; tip.hidden = true; hide(); };
  drawing.addEventListener("pointermove", (event) => {
    const found = at(event);
    if (found === null) { leave(); return; }
    here = found;
    show(here, event.clientX, event.clientY, false);
  });
  drawing.addEventListener("pointerdown", (event) => {
    const found = at(event);
    if (found !== null) { here = found; show(here, event.clientX, event.clientY, event.pointerType !== "mouse"); }
  });
  drawing.addEventListener("pointerleave", leave);
  drawing.addEventListener("blur", leave);
  drawing.addEventListener("keydown", (event) => {
    if (event.target !== drawing || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") { leave(); return; }
    const next = move(here, event.key);
    if (next === undefined) return;
    event.preventDefault();
    here = next;
    show(here, null, null, true);
  });
}

function lines(drawing, chart) {
  const [x, y] = [JSON.parse(chart.dataset.x), JSON.parse(chart.dataset.y)];
  const plot = chart.querySelector(".plot");
  const hair = chart.querySelector(".hair");
  const all = [...chart.querySelectorAll(".paths .line")].map(
    (path, i) => readLine(path, chart.querySelector(`.paths [data-line="${i}"]`)));
  const main = all.filter((line) => !line.faint && (line.name || !line.guide));
  const faint = all.filter((line) => line.faint);
  const stops = (group) => group.flatMap((line) => line.runs.flat().map((point) => point[0]))
    .filter((place) => place > -NEAR && place < SIDE + NEAR).sort((a, b) => a - b)
    .filter((place, i, sorted) => i === 0 || place - sorted[i - 1] > NEAR);
  let places = stops(main.filter((line) => !line.guide));
  if (!places.length) places = stops(faint);
  if (!places.length) places = stops(main);
  const nearest = (place) => places.reduce((best, p, i) => (Math.abs(p - place) < Math.abs(places[best] - place) ? i : best), 0);

  const show = ({ stop, named }, px, py, say) => {
    const place = places[stop];
    const box = plot.getBoundingClientRect();
    const pairs = [];
    hair.replaceChildren();
    const add = (line) => {
      const found = heightAt(line, place);
      if (!found) return;
      pairs.push([line.name, saidOf(y, found)]);
      if (line.guide || found.y < -NEAR || found.y > SIDE + NEAR) return;
      const dot = document.createElement("i");
      dot.style.top = `${found.y / SIDE * 100}%`;
      hair.append(dot);
    };
    for (const line of all) line.path.classList.toggle("named", line === named);
    if (named) add(named);
    main.forEach(add);
    hair.style.left = `${place / SIDE * 100}%`;
    hair.hidden = false;
    showTip(`${x.label}: ${textOf(x, place / SIDE, true)}`, pairs, px ?? box.left + box.width * place / SIDE,
      py === null ? [box.top + box.height, box.top] : [py, py], say);
  };
  const under = (event, box) => {
    const px = (event.clientX - box.left) / box.width * SIDE;
    const py = event.clientY - box.top;
    let best = { line: null, far: 12 };
    for (const line of faint) {
      const found = heightAt(line, px) || heightAt(line, places[nearest(px)]);
      const far = found ? Math.abs(found.y / SIDE * box.height - py) : Infinity;
      if (far < best.far) best = { line, far };
    }
    return best.line;
  };
  walk(drawing, {
    at: (event) => {
      const box = plot.getBoundingClientRect();
      const inside = event.clientX > box.left - 20 && event.clientX < box.right + 20 && event.clientY > box.top - 20 && event.clientY < box.bottom + 30;
      if (!inside || !places.length) return null;
      return { stop: nearest((event.clientX - box.left) / box.width * SIDE), named: under(event, box) };
    },
    move: (here, key) => {
      const { stop, named } = here || { stop: -1, named: null };
      const last = places.length - 1;
      if (last < 0) return undefined;
      if (key === "ArrowRight") return { stop: Math.min(stop + 1, last), named };
      if (key === "ArrowLeft") return { stop: stop < 0 ? last : Math.max(stop - 1, 0), named };
      if (key === "Home") return { stop: 0, named };
      if (key === "End") return { stop: last, named };
      if (faint.length && (key === "ArrowDown" || key === "ArrowUp")) {
        const next = faint.indexOf(named) + (key === "ArrowDown" ? 1 : -1);
        return { stop: Math.max(stop, 0), named: faint[(next + faint.length) % faint.length] };
      }
      return undefined;
    },
    show,
    hide: () => { hair.hidden = true; for (const line of faint) line.path.classList.remove("named"); },
  });
}

/** Mark what one points at, bring it into its box, and find its place on the screen. */
function markHere(chart, item, keyed) {
  chart.querySelectorAll(".here").forEach((other) => other.classList.remove("here"));
  if (!item) return null;
  item.classList.add("here");
  if (keyed) item.scrollIntoView({ block: "nearest", inline: "nearest" });
  return item.getBoundingClientRect();
}

function rows(drawing, chart) {
  const list = [...chart.querySelectorAll("tbody tr")];
  const label = (chart.querySelector("thead .drawn span") || {}).textContent || "";
  const heads = [...chart.querySelectorAll("thead .count")].map((head) => head.textContent);
  const models = [...chart.parentElement.querySelectorAll(".legend bdi")].map((name) => name.textContent);
  const show = (row, px, py, say) => {
    const box = markHere(chart, row, say);
    const counts = [...row.querySelectorAll(".count")].map((cell, i) => [heads[i], cell.textContent]);
    const spans = [...row.querySelectorAll(".said span")];
    const said = (spans.length ? spans : [row.querySelector(".said")]).map((span, i) => [models[i] || label, span.textContent]);
    showTip(row.querySelector("th").textContent, [...counts.filter((pair) => pair[1]), ...said],
      px ?? box.left + box.width / 2, py === null ? [box.top, box.bottom - 8] : [py, py], say);
  };
  walk(drawing, {
    at: (event) => event.target.closest("tbody tr"),
    move: (here, key) => {
      const i = here ? list.indexOf(here) : -1;
      const next = { ArrowDown: i + 1, ArrowUp: here ? i - 1 : list.length - 1, Home: 0, End: list.length - 1, PageDown: i + 10, PageUp: i - 10 }[key];
      return next === undefined || !list.length ? undefined : list[Math.min(Math.max(next, 0), list.length - 1)];
    },
    show,
    hide: () => markHere(chart, null),
  });
}

function cells(drawing, chart) {
  const grid = [...chart.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")]);
  const heads = [...chart.querySelectorAll("thead th")].map((head) => head.textContent);
  walk(drawing, {
    at: (event) => event.target.closest("tbody td"),
    move: (here, key) => {
      const r = here ? grid.findIndex((row) => row.includes(here)) : 0;
      const c = here ? grid[r].indexOf(here) : 0;
      const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], Home: [0, -c], End: [0, 1e6] }[key];
      if (!step || !grid.length || !grid[0].length) return undefined;
      if (!here) return grid[0][0];
      const row = grid[Math.min(Math.max(r + step[0], 0), grid.length - 1)];
      return row[Math.min(Math.max(c + step[1], 0), row.length - 1)];
    },
    show: (cell, px, py, say) => {
      const box = markHere(chart, cell, say);
      const row = cell.closest("tr");
      const share = cell.textContent === "–" ? "no value" : `${cell.textContent} %`;
      showTip(row.querySelector("th").textContent, [[heads[[...row.querySelectorAll("td")].indexOf(cell)], share]],
        px ?? box.right, py === null ? [box.top, box.bottom - 8] : [py, py], say);
    },
    hide: () => markHere(chart, null),
  });
}

/** Make the drawings below an element show their values. */
function bindDrawings(root) {
  for (const drawing of root.querySelectorAll(".drawing")) {
    drawing.querySelectorAll("[title]").forEach((named) => named.removeAttribute("title"));
    for (const chart of drawing.querySelectorAll("[data-kind]")) {
      ({ lines, rows, cells })[chart.dataset.kind](drawing, chart);
    }
  }
}

bindDrawings(document);
