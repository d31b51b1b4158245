/**
 * The Teach tab: a zip or loose photos in, progress, the accuracy to expect before and after, and the way back.
 *
 * @typedef {import("./parts.js").Model} Model
 * @typedef {{event: string, classes?: string[], again?: string[], images?: number, epoch?: number, epochs?: number, loss?: number,
 *   held_out_accuracy?: number | null, seconds_left?: number | null, estimated_seconds?: number, digest?: string,
 *   seconds?: number, share?: number, text?: string, done?: number, photos?: number}} TeachEvent
 * @typedef {{state: "idle" | "running" | "done" | "failed", events: TeachEvent[], accuracy_before: number | null,
 *   accuracy_after: number | null, error: string | null}} Job
 */

import {
  accuracy, announce, byId, confirmed, counted, drawLine, element, formWith, notice, pause, readableBytes, sentence, subjects,
  takeFiles, Trouble, undoing,
} from "./parts.js";
import { Loose } from "./loose.js";

/** @param {number} seconds @returns {string} */
const duration = (seconds) => (seconds < 90 ? `${Math.ceil(seconds) || 1} s` : `${Math.round(seconds / 60)} min`);

/** Everything the tab knows. */
export class Teach {
  /** @type {Model | null} */ #model = null;
  #busy = false;
  #server;
  #changed;
  #loose;

  /** @param {import("./parts.js").Server} server @param {(model?: Model) => Promise<void>} changed called when the model is another one */
  constructor(server, changed) {
    this.#server = server;
    this.#changed = changed;
    this.#loose = new Loose((archive) => void this.#teach(archive), (problem) => notice("teach-trouble", problem));
    takeFiles("archive", "panel-teach", (files) => void this.#take(files));
    byId("undo-button").addEventListener("click", () => void this.#undo());
  }

  /** @param {Model} model */
  learned(model) {
    const first = this.#model === null;
    this.#model = model;
    this.#enable();
    if (first && model.can_teach) void this.#follow(); // a job may be running since before this page was opened
  }

  /** @param {string} label @param {File[]} files for the next lesson @returns {string | null} what is wrong */
  add(label, files) {
    return this.#loose.add(label, files);
  }

  #enable() {
    const model = this.#model;
    const allowed = Boolean(model?.can_teach);
    const last = model?.tasks.at(-1);
    byId("teach-off").hidden = allowed;
    byId("archive-drop").classList.toggle("off", !allowed);
    byId("teach-stores").hidden = !model?.stores_images;
    /** @type {HTMLButtonElement} */ (byId("archive-button")).disabled = !allowed || this.#busy;
    /** @type {HTMLButtonElement} */ (byId("undo-button")).disabled = !allowed || this.#busy || !model?.can_undo;
    this.#loose.enable(allowed && !this.#busy);
    const classes = last?.classes ?? [];
    const count = classes.length ? `${counted(classes, "class", "classes")}: ` : "";
    const task = `task ${last?.index} (${count}${subjects(classes, last?.again ?? [])})`;
    const { name, before, warning } = undoing(model?.undoes ?? "task", task);
    const back = `The model goes back to before ${before}.`;
    const possible = model?.can_undo ? back : "There is nothing to undo: no earlier generation is kept.";
    byId("undo-line").textContent = allowed ? possible : "Switched off together with teaching.";
    byId("undo-heading").textContent = byId("undo-title").textContent = `Undo the ${name}`;
    byId("undo-warning").textContent = warning;
  }

  /** @param {File[]} files a zip, or photos of the class that is named */
  async #take(files) {
    const loose = files.filter((file) => !/\.zip$/i.test(file.name));
    if (!loose.length) return this.#teach(files[0]);
    const advice = "put one folder per class into a zip file, or name its class below.";
    notice("teach-trouble", this.#loose.label ? this.add(this.#loose.label, loose) : `${loose[0].name} is not a zip: ${advice}`);
  }

  /** @param {File} file */
  async #teach(file) {
    notice("teach-trouble", null);
    this.#setBusy(true);
    const size = readableBytes(file.size);
    describeJob(`Sending ${file.name}`, size, 0);
    try {
      const form = await formWith(file, "archive", this.#model?.limits?.archive_bytes);
      await this.#server.call("POST", "teach", form, (share) => {
        if (share < 1) describeJob(`Sending ${file.name}`, size, share);
        else describeJob("Checking the photos", size, null);
      });
      announce("The photos arrived. Learning begins.");
    } catch (problem) {
      showJob(false);
      notice("teach-trouble", sentence(problem), () => void this.#teach(file));
      this.#setBusy(false);
      if (!(problem instanceof Trouble) || problem.status !== 409) return; // 409: another job runs; watch that one
    }
    await this.#follow();
  }

  /** Watches the job, second by second, until it ends. */
  async #follow() {
    let watched = false;
    for (;;) {
      try {
        const job = /** @type {Job} */ (await this.#server.call("GET", "teach"));
        if (watched) notice("teach-trouble", null);
        if (job.state !== "running") return await this.#finish(job, watched || this.#busy);
        watched = true;
        this.#setBusy(true);
        showProgress(job);
      } catch (problem) {
        notice("teach-trouble", `${sentence(problem)} Trying again every second.`);
        watched = true;
      }
      await pause(1);
    }
  }

  /** @param {Job} job @param {boolean} watched whether it ended before the eyes of the person */
  async #finish(job, watched) {
    this.#setBusy(false);
    const done = job.events.findLast((event) => event.event === "done");
    if (job.state === "failed") {
      showJob(false);
      notice("teach-trouble", job.error ?? "Learning failed; the model is as it was.");
    }
    if (job.state !== "done") return;
    if (watched) {
      this.#loose.clear();
      await this.#changed();
    }
    if (done?.digest !== undefined && done.digest !== this.#model?.digest) return; // undone since
    const start = job.events.find((event) => event.event === "start");
    const [classes, again] = [start?.classes ?? [], start?.again ?? []];
    showProgress(job);
    const time = done?.seconds ? ` · in ${duration(done.seconds)}` : "";
    const learned = classes.length ? counted(classes, "new class", "new classes") : "more of known classes";
    describeJob(`Learned ${learned}`, `${subjects(classes, again)}${time}`, 1);
    const [before, after] = [accuracy(job.accuracy_before), accuracy(job.accuracy_after)];
    byId("accuracy-before").textContent = before;
    byId("accuracy-after").textContent = after;
    byId("job-accuracy").hidden = byId("job-note").hidden = false;
    const notes = job.events.flatMap((event) => (event.event === "note" && event.text ? [event.text] : []));
    byId("job-notes").replaceChildren(...notes.map((text) => element("li", "", text)));
    byId("job-progress").hidden = true;
    if (watched) announce(`Learning is done. Accuracy before ${before}, after ${after}.`);
  }

  async #undo() {
    if (!(await confirmed("undo-dialog"))) return;
    this.#setBusy(true);
    notice("teach-trouble", null);
    try {
      const model = await this.#server.call("POST", "undo");
      showJob(false);
      await this.#changed(model);
      announce("It is undone.");
    } catch (problem) {
      notice("teach-trouble", sentence(problem), () => void this.#undo());
    }
    this.#setBusy(false);
    byId("tab-teach").focus(); // the button was disabled meanwhile and lost it
  }

  /** @param {boolean} busy */
  #setBusy(busy) {
    this.#busy = busy;
    this.#enable();
  }
}

/** @param {boolean} visible the drop zone makes room for it */
function showJob(visible) {
  byId("job").hidden = !visible;
  byId("archive-drop").classList.toggle("narrow", visible);
}

/** @param {string} title @param {string} detail @param {number | null} share done; null where nobody knows */
function describeJob(title, detail, share) {
  const progress = /** @type {HTMLProgressElement} */ (byId("job-progress"));
  showJob(true);
  byId("job-title").textContent = title;
  byId("job-detail").textContent = detail;
  if (share === null) progress.removeAttribute("value");
  else progress.value = share;
  progress.hidden = false;
  byId("job-accuracy").hidden = byId("job-note").hidden = true;
  byId("job-notes").replaceChildren();
  if (share === 0 || share === null) byId("job-charts").hidden = true;
}

/** @param {Job} job */
function showProgress(job) {
  const epochs = job.events.filter((event) => event.event === "epoch");
  const start = job.events.find((event) => event.event === "start");
  const last = epochs.at(-1);
  const ending = job.events.findLast((event) => event.event === "ending"); // what comes after the last epoch
  const left = (ending ?? last)?.seconds_left ?? start?.estimated_seconds;
  const soon = typeof left === "number" ? `about ${duration(left)} left` : "estimating the time";
  const title = start?.classes ? `Learning ${subjects(start.classes, start.again ?? [])}` : "Preparing the photos";
  const reading = job.events.findLast((event) => event.event === "reading");
  if (reading?.photos && !start) {
    const done = reading.done ?? 0;
    describeJob("Reading the photos", `${done} of ${reading.photos}`, done / reading.photos);
  } else if (ending?.share) {
    describeJob(title, `Finishing · ${soon}`, ending.share);
  } else if (last?.epoch && last.epochs) {
    describeJob(title, `Epoch ${last.epoch} of at most ${last.epochs} · ${soon}`, last.epoch / last.epochs);
  } else {
    describeJob(title, soon, null);
  }
  byId("job-charts").hidden = epochs.length === 0;
  drawLine("loss", epochs.map((event) => event.loss), (value) => value.toFixed(3));
  drawLine("accuracy", epochs.map((event) => event.held_out_accuracy), accuracy, 100);
}
