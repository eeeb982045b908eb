// The threshold slider, buttons to copy, the place in the contents, and what paper needs.

const share = (part, whole, least = 1) => (whole >= least ? part / whole : null);
const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);
const ofHundred = (value) => {
  const round = Math.round(100 * value);
  if (round === 0 && value > 0) return "fewer than 1";
  return round === 100 && value < 1 ? "more than 99" : String(round);
};

/** "80 are found", "1 is found". */
function count(value, one, many) {
  const said = ofHundred(value);
  return `${said} ${said === "1" ? one : many}`;
}

function inWords(found) {
  const said = [];
  if (found.sensitivity !== null) said.push(`of 100 rows with the outcome, ${count(found.sensitivity, "is", "are")} found`);
  if (found.specificity !== null) said.push(`of 100 without it, ${count(1 - found.specificity, "gets", "get")} a false alarm`);
  if (found.ppv !== null) said.push(`of 100 alarms, ${count(found.ppv, "is", "are")} right`);
  else said.push(found.raised === 0 ? "no row gets an alarm" : `alarms: only ${found.raised}, too few to say how many are right`);
  const text = said.join("; ");
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function figuresAt(data, i) {
  const [tp, fp] = [data.tp[i], data.fp[i]];
  const [fn, tn] = [data.positives - tp, data.negatives - fp];
  return {
    sensitivity: share(tp, data.positives), specificity: share(tn, data.negatives),
    ppv: share(tp, tp + fp, data.few), npv: share(tn, tn + fn, data.few),
    alarms: share(tp + fp, data.positives + data.negatives), raised: tp + fp,
  };
}

for (const slider of document.querySelectorAll(".slider")) {
  const data = JSON.parse(slider.dataset.figures);
  const input = slider.querySelector("input");
  const [where, back] = [slider.querySelector(".where span"), slider.querySelector(".where button")];
  const chosen = Number(input.dataset.chosen);
  const update = () => {
    const i = Number(input.value);
    const found = figuresAt(data, i);
    const at = `${(100 * data.at[i]).toFixed(1)} %`;
    slider.querySelector(".at").textContent = at;
    input.setAttribute("aria-valuetext", at);
    slider.querySelector(".words").textContent = inWords(found);
    for (const cell of slider.querySelectorAll("[data-figure]")) {
      const value = found[cell.dataset.figure];
      cell.textContent = cell.dataset.figure === "alarms" && value !== null ? (100 * value).toFixed(1) : percent(value);
    }
    where.textContent = i === chosen ? "This is the threshold of the run." : "";
    back.hidden = i === chosen;
  };
  input.addEventListener("input", update);
  back.addEventListener("click", () => { input.value = chosen; update(); input.focus(); });
  input.value = chosen;
  update();
  slider.hidden = false;
  slider.parentElement.querySelector("details").open = false;
}

window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll(".threshold details")) folded.open = true;
});
window.addEventListener("afterprint", () => {
  for (const folded of document.querySelectorAll(".slider ~ details")) folded.open = false;
});

for (const button of document.querySelectorAll(".copy")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent).then(
      () => { button.textContent = "Copied"; },
      () => { button.textContent = "Select and copy"; },
    ).then(() => setTimeout(() => { button.textContent = "Copy"; }, 2000));
  });
}

const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
if (links.size && "IntersectionObserver" in window) {
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    const here = [...links.keys()].find((key) => seen.has(key));
    for (const [key, link] of links) {
      link.classList.toggle("here", key === here);
      if (key === here) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-10% 0px -55% 0px" });
  document.querySelectorAll("main section").forEach((section) => watch.observe(section));
}
