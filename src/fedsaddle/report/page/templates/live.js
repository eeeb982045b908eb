// Parts of the page that have changed come as events; what they hold is escaped by the server.

const link = document.getElementById("link");
const held = new Map(); // parts that wait, because somebody points at them or is in them

/** Whether somebody is busy with a part: new content would take it from under the pointer or the keys. */
function isBusy(part) {
  return part.contains(document.activeElement) || part.querySelector(".drawing:hover, details:hover, form:hover") !== null;
}

/** What is unfolded stays so; a box that is ticked but not sent yet stays ticked. */
function replaced(part, html) {
  const open = [...part.querySelectorAll("details")].map((one) => one.open);
  const ticked = [...part.querySelectorAll("input")].filter((one) => one.checked !== one.defaultChecked).map((one) => [one.value, one.checked]);
  const before = part.querySelector("[data-state]");
  const log = part.querySelector("pre");
  const atEnd = log && log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  part.innerHTML = html;
  part.querySelectorAll("details").forEach((one, i) => { one.open = open[i] || false; });
  for (const [value, checked] of ticked) {
    for (const one of part.querySelectorAll("input")) if (one.value === value) one.checked = checked;
  }
  if (log && atEnd) part.querySelectorAll("pre").forEach((one) => { one.scrollTop = one.scrollHeight; });
  const after = part.querySelector("[data-state]");
  if (before && after && before.dataset.state !== after.dataset.state) live.textContent = after.dataset.state;
  bindDrawings(part);
}

function update(key, html) {
  const part = document.getElementById(key);
  if (!part) return;
  if (isBusy(part)) { held.set(key, html); return; }
  held.delete(key);
  replaced(part, html);
}

setInterval(() => { for (const [key, html] of [...held]) update(key, html); }, 500);
document.querySelectorAll("pre").forEach((one) => { one.scrollTop = one.scrollHeight; });

const source = new EventSource(document.body.dataset.events);
source.addEventListener("part", (event) => {
  const { key, html } = JSON.parse(event.data);
  update(key, html);
});
source.addEventListener("layout", () => { source.close(); location.reload(); });
source.addEventListener("open", () => { link.textContent = "This page follows the files of the runs."; link.classList.remove("cut"); });
source.addEventListener("error", () => {
  link.textContent = "No connection: `fedsaddle watch` has ended or cannot be reached. What you see is not new any more.";
  link.classList.add("cut");
});
