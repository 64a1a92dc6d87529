// The dashboard: takes the feed, keeps the last runs, draws. Text from outside reaches the page by textContent alone.
"use strict";

const about = JSON.parse(document.documentElement.dataset.about);
const $ = (id) => document.getElementById(id);
const KEPT = 4000;

$("title").textContent = about.title;
document.title = about.title + " · procsched";

const jobNumbers = new Map(), jobNames = [];
const laneNumbers = new Map();
const runs = [];                       // [slot, job, number, start, end, late, outcome, error, why], by end
let begun = null, seen = 0, state = null, following = true, counts = [], sort = "next";

const timeline = new Timeline($("timeline"), {lanes: [], jobs: jobNames, begun: 0});
timeline.describe = (i) => {
  const run = timeline.runs.info[i];
  const rows = [["run", "#" + run[2]], ["outcome", run[6].replace("_", " "), run[6] !== "succeeded"],
    ["took", lengthOf(run[4] - run[3])], ["late", lengthOf(run[5])], ["started", clock(run[3])]];
  if (run[8]) rows.push(["because", run[8]]);
  if (run[7]) rows.push(["error", run[7], true]);
  return rows;
};
for (const kind of ["wheel", "pointerdown", "keydown"]) timeline.canvas.addEventListener(kind, () => follow(false));
$("follow").addEventListener("click", () => follow(!following));
$("failure").addEventListener("click", () => { follow(false); timeline.seek(1); });
$("fit").addEventListener("click", () => { follow(false); timeline.fit(); });
$("in").addEventListener("click", () => timeline.zoom(0.6));
$("out").addEventListener("click", () => timeline.zoom(1.7));

function follow(on) { following = on; $("follow").setAttribute("aria-pressed", String(on)); if (on) slide(); }
function clock(at) { return new Date(at * 1000).toLocaleTimeString([], {hour12: false}); }

function numberOf(name) {
  if (!jobNumbers.has(name)) { jobNumbers.set(name, jobNames.length); jobNames.push(name); }
  return jobNumbers.get(name);
}

/** What the feed sends: how things stand, and the runs that have ended since. */
function take(message) {
  if (message.seen < seen) { runs.length = 0; counts = []; }     // another program answers now
  seen = message.seen;
  state = message;
  if (begun === null) { begun = message.at - message.uptime; timeline.begun = begun; }
  for (const run of message.runs) runs.push(run);
  if (runs.length > KEPT) runs.splice(0, runs.length - KEPT);
  counts.push([message.at - begun, message.stats.executing, message.stats.ready]);
  if (counts.length > 2400) counts.shift();
  const lanes = message.workers.map((w) => `worker ${w.slot}` + (w.pid ? ` (pid ${w.pid})` : ""));
  timeline.lanes = lanes;
  drawTimeline();
  drawFacts(); drawJobs(); drawWorkers(); drawComing(); drawFailures();
}

function drawTimeline() {
  const shown = runs.slice().sort((a, b) => a[3] - b[3]);
  for (const worker of state.workers) {                           // what executes now: a bar up to now
    if (worker.run && worker.elapsed > 0.05) {
      const cut = worker.run.lastIndexOf(" #");
      shown.push([worker.slot, worker.run.slice(0, cut), worker.run.slice(cut + 2), state.at - worker.elapsed, state.at, 0, "executing", "", ""]);
    }
  }
  timeline.counts = counts;
  timeline.set({
    lane: shown.map((r) => r[0]), job: shown.map((r) => numberOf(r[1])), start: shown.map((r) => r[3] - begun),
    end: shown.map((r) => r[4] - begun), late: shown.map((r) => r[5]),
    bad: shown.map((r) => Number(r[6] !== "succeeded" && r[6] !== "executing")), info: shown,
  });
  if (following) slide();
}

function slide() {
  if (!state) return;
  const now = state.at - begun;
  timeline.show(Math.max(-1, now - 60), now + 2);
}

function cell(row, text, name) {
  const made = row.insertCell();
  if (name) made.className = name;
  if (text instanceof Node) made.append(text); else made.textContent = text;
  return made;
}

function drawFacts() {
  const {stats, health} = state, failures = stats.failed + stats.crashed + stats.timed_out + stats.aborted;
  const facts = [[lengthOf(state.uptime), "up"], [`${health.workers_up}/${state.workers.length}`, "workers", !health.workers_up],
    [stats.executing, "executing"], [stats.ready, "ready"], [stats.ended.toLocaleString(), "runs"], [state.rate.toPrecision(3) * 1, "runs/s"],
    [failures.toLocaleString(), failures === 1 ? "failure" : "failures", failures]];
  if (!health.ok) facts.unshift(["NOT WELL:", "its loop stands still or has ended", true]);
  $("facts").replaceChildren(...facts.map(([value, words, bad]) => {
    const part = document.createElement("span"), number = part.appendChild(document.createElement("b"));
    number.textContent = value;
    if (bad) number.className = "bad";
    part.append(" " + words + "  ");
    return part;
  }));
}

const SORTS = {
  next: (j) => j.next_run ?? Infinity, id: (j) => j.id, state: (j) => j.state, last: (j) => j.last_outcome, runs: (j) => -j.runs,
  failures: (j) => -j.failures, late: (j) => -(j.lateness_p99 ?? 0),
};
const TONES = {succeeded: "good", failed: "bad", crashed: "bad", timed_out: "bad", aborted: "bad", running: "busy", busy: "busy",
  paused: "warn", down: "bad", booting: "warn", skipped: "warn", scheduled: "soft", idle: "soft", ended: "soft"};
for (const button of document.querySelectorAll("[data-sort]")) button.addEventListener("click", () => { sort = button.dataset.sort; drawJobs(); });
$("filter").addEventListener("input", () => drawJobs());

function drawJobs() {
  if (!state) return;
  for (const button of document.querySelectorAll("[data-sort]")) {
    if (button.dataset.sort === sort) button.setAttribute("aria-sort", "ascending"); else button.removeAttribute("aria-sort");
  }
  const wanted = $("filter").value.toLowerCase(), key = SORTS[sort];
  const jobs = state.jobs.filter((j) => j.id.toLowerCase().includes(wanted));
  jobs.sort((a, b) => { const x = key(a), y = key(b); return x < y ? -1 : x > y ? 1 : a.id < b.id ? -1 : 1; });
  const body = $("jobs").tBodies[0], focused = document.activeElement?.dataset?.deed && document.activeElement.dataset;
  const hold = focused && {...focused};
  const fresh = document.createElement("tbody");
  for (const job of jobs.slice(0, 200)) {
    const row = fresh.insertRow();
    cell(row, job.id, "id").title = job.schedule;
    cell(row, job.state, TONES[job.state]);
    const ahead = job.next_run === null ? "" : job.next_run - state.at;
    cell(row, ahead === "" ? "" : ahead < 0.5 ? "now" : "in " + lengthOf(ahead < 100 ? Math.round(ahead) : ahead), "n");
    cell(row, job.last_outcome.replace("_", " "), TONES[job.last_outcome]);
    cell(row, job.runs.toLocaleString(), "n");
    cell(row, job.failures.toLocaleString(), job.failures ? "n bad" : "n soft");
    cell(row, job.lateness_p50 === null ? "" : `${lengthOf(job.lateness_p50)}, ${lengthOf(job.lateness_p99)}`, "n");
    cell(row, sparkline(job.durations));
    const deeds = cell(row, "");
    if (!about.readOnly && job.state !== "ended") {
      for (const deed of ["trigger", job.state === "paused" ? "resume" : "pause", "cancel"]) {
        const button = deeds.appendChild(document.createElement("button"));
        button.type = "button"; button.className = "deed"; button.textContent = deed === "trigger" ? "run now" : deed;
        button.dataset.deed = deed; button.dataset.job = job.id;
        button.setAttribute("aria-label", `${button.textContent}: ${job.id}`);
      }
    }
  }
  body.replaceWith(fresh);
  if (hold) [...fresh.querySelectorAll("[data-deed]")].find((b) => b.dataset.job === hold.job && b.dataset.deed === hold.deed)?.focus();
  const hidden = jobs.length - Math.min(jobs.length, 200) + state.more_jobs;
  $("more").textContent = hidden ? `and ${hidden.toLocaleString()} more: the filter finds them` : "";
}

function sparkline(values) {
  const wide = 90, high = 16, svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("width", wide); svg.setAttribute("height", high); svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", values.length ? "latest took " + lengthOf(values[values.length - 1]) : "no runs yet");
  if (values.length > 1) {
    const most = Math.max(...values), line = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "polyline"));
    line.setAttribute("points", values.map((v, i) => `${(i / (values.length - 1) * wide).toFixed(1)},${(high - 1 - v / most * (high - 2)).toFixed(1)}`).join(" "));
    line.setAttribute("fill", "none"); line.setAttribute("stroke", "currentColor"); line.setAttribute("stroke-width", "1.2");
  }
  return svg;
}

$("jobs").addEventListener("click", async (event) => {
  const {deed, job} = event.target.dataset ?? {};
  if (!deed) return;
  if (deed === "cancel" && !await ask(`Cancel ${job}? What executes finishes, and it never runs again.`)) return;
  const answer = await fetch("api/jobs/" + deed, {method: "POST", headers: {"X-Procsched-Key": about.key}, body: JSON.stringify({id: job})});
  if (!answer.ok) status(`${job}: ` + (await answer.text()), true);
});

function ask(question) {
  const dialog = $("ask");
  $("question").textContent = question;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), {once: true}));
}

function drawWorkers() {
  const fresh = document.createElement("tbody");
  for (const worker of state.workers) {
    const row = fresh.insertRow();
    cell(row, worker.slot, "n"); cell(row, worker.pid ?? "", "n"); cell(row, worker.state, TONES[worker.state]); cell(row, worker.run);
    cell(row, worker.elapsed === null ? "" : lengthOf(worker.elapsed), "n");
    const progress = cell(row, "");
    if (worker.fraction !== null) {
      const meter = progress.appendChild(document.createElement("meter"));
      meter.value = worker.fraction;
      progress.append(` ${Math.round(worker.fraction * 100)}% ${worker.message}`);
    }
    cell(row, worker.cpu === null ? "" : Math.round(worker.cpu * 100) + "%", "n");
    cell(row, worker.memory === null ? "" : (worker.memory / 1048576).toFixed(1) + " MiB", "n");
  }
  $("workers").tBodies[0].replaceWith(fresh);
  const waiting = state.waiting.slice(0, 8).map((run) => item(`${run.run} for ${lengthOf(run.seconds)}: ${run.why}`));
  if (state.stats.ready > waiting.length) waiting.push(item(`and ${(state.stats.ready - waiting.length).toLocaleString()} more`));
  $("waiting").replaceChildren(...(waiting.length ? waiting : [item("nothing")]));
}

function item(text) { const made = document.createElement("li"); made.textContent = text; return made; }

function drawComing() {
  $("coming").replaceChildren(...(state.coming.length ? state.coming.slice(0, 120).map(([at, job]) => item(`${clock(at)}  ${job}`)) : [item("nothing")]));
}

let failuresShown = "";
function drawFailures() {
  const key = state.failures.map((f) => f.job_id + f.number + f.finished).join("|");
  if (key === failuresShown) return;                              // what somebody has opened stays open
  failuresShown = key;
  const open = new Set([...document.querySelectorAll("#failures details[open]")].map((d) => d.dataset.key));
  const made = state.failures.map((failure) => {
    const part = document.createElement("details"), head = part.appendChild(document.createElement("summary"));
    part.dataset.key = `${failure.job_id}#${failure.number}`;
    part.open = open.has(part.dataset.key);
    const error = failure.error ?? {type: failure.outcome, message: "", traceback: "", logs: []};
    head.textContent = `${clock(Date.parse(failure.finished) / 1000)}  ${failure.job_id} #${failure.number} ${failure.outcome.replace("_", " ")}: ${error.type} ${error.message}`.slice(0, 400);
    const lines = [error.message, error.oom ? "The kernel's out-of-memory killer did it." : "",
      `took ${lengthOf(failure.duration)}, ${lengthOf(failure.lateness)} late ${failure.held_by ? `(${failure.held_by})` : ""}, worker ${failure.worker}, pid ${failure.pid}, at most ${(failure.max_rss / 1048576).toFixed(0)} MiB`,
      error.traceback, error.logs.length ? "Its last log records:\n" + error.logs.join("\n") : ""];
    part.appendChild(document.createElement("pre")).textContent = lines.filter(Boolean).join("\n\n");
    return part;
  });
  $("failures").replaceChildren(...(made.length ? made : [Object.assign(document.createElement("p"), {className: "soft", textContent: "none so far"})]));
}

function status(text, bad) { $("link").textContent = text; $("link").className = bad ? "link bad" : "link"; }

const feed = new EventSource("api/events");
feed.onopen = () => status("live");
feed.onmessage = (event) => { status("live"); take(JSON.parse(event.data)); };
feed.onerror = () => status(feed.readyState === EventSource.CLOSED ? "the program has ended, or lets you in no more" : "connection lost; trying again …", true);
