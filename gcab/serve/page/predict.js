/**
 * The Predict tab: photos in, classes, gates and attention out.
 *
 * @typedef {{file: string, error?: string, top: {class: string, task: number, probability: number}[], unknown: number | null,
 *   flagged: boolean, tasks: {task: number, probability: number}[], answered_by: number,
 *   attention?: {side: number, maps: number[][]}}} Prediction
 * @typedef {{file: File, address: string, button: HTMLButtonElement, caption: HTMLElement,
 *   prediction: Prediction | null, digest: string | null, trouble: string | null, hopeless: boolean,
 *   corrected: string | null}} Photo
 */

import { announce, byId, element, formWith, notice, percent, sentence, showBars, sidesOf, takeFiles, Trouble } from "./parts.js";

const FLAT = 0.8; // a map that nowhere falls below this share of its peak shows no place
const AT_ONCE = 4; // requests under way together: enough for the server to batch, few enough to leave it responsive
// From hardly looked at to looked at most: [red, green, blue, opacity].
const RAMP = [[12, 20, 48, 0.82], [94, 32, 120, 0.74], [214, 62, 76, 0.66], [255, 158, 44, 0.6], [255, 240, 130, 0.55]];

/** Everything the tab knows; the page shows one photo of many. */
export class Predict {
  /** @type {Photo[]} */ #photos = [];
  /** @type {Photo | null} */ #shown = null;
  /** @type {ImageBitmap | null} */ #bitmap = null;
  /** @type {Photo[]} */ #waiting = [];
  /** @type {import("./parts.js").Model | null} */ #model = null;
  #busy = 0;
  #server;
  #changed;
  #correct;

  /**
   * @param {import("./parts.js").Server} server
   * @param {{appear: () => void, changed: () => void, correct: (label: string, file: File) => string | null}} calls
   *   to bring this tab to the front; when an answer comes from another model than the one known here; and to keep a
   *   photo for the next lesson, which says what is wrong with the class
   */
  constructor(server, { appear, changed, correct }) {
    this.#server = server;
    this.#changed = changed;
    this.#correct = correct;
    takeFiles("photo", "panel-predict", (files) => this.add(files));
    document.addEventListener("paste", (event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      appear();
      this.add(files);
    });
    byId("photo-clear").addEventListener("click", () => this.#clear());
    byId("answer-add").addEventListener("click", () => this.#take());
    byId("answer-right").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.#take();
    });
    byId("map-task").addEventListener("change", () => this.#paint());
    byId("map-opacity").addEventListener("input", () => this.#paint());
  }

  /** @param {import("./parts.js").Model} model answers of an earlier one are marked as such */
  learned(model) {
    this.#model = model;
    this.#describe();
  }

  /** @param {File[]} files */
  add(files) {
    const added = files.map((file) => this.#photo(file));
    this.#photos.unshift(...added);
    byId("photo-list").prepend(...added.map((photo) => element("li", "", photo.button)));
    added.forEach((photo) => this.#ask(photo));
    if (added[0]) this.#show(added[0]);
  }

  /** @param {File} file @returns {Photo} */
  #photo(file) {
    const button = /** @type {HTMLButtonElement} */ (element("button", "photo"));
    const picture = /** @type {HTMLImageElement} */ (element("img"));
    const caption = element("span", "caption", "…");
    const nothingYet = { prediction: null, digest: null, trouble: null, hopeless: false, corrected: null };
    const photo = { file, address: URL.createObjectURL(file), button, caption, ...nothingYet };
    picture.alt = file.name;
    picture.onerror = () => picture.replaceWith(element("span", "no-picture", file.name));
    picture.src = photo.address;
    button.type = "button";
    button.append(picture, caption);
    button.addEventListener("click", () => this.#show(photo));
    return photo;
  }

  /** @param {Photo} photo */
  #ask(photo) {
    Object.assign(photo, { prediction: null, trouble: null });
    this.#waiting.push(photo);
    this.#label(photo);
    if (this.#busy < AT_ONCE) void this.#work();
  }

  async #work() {
    this.#busy += 1;
    for (let photo = this.#waiting.shift(); photo; photo = this.#waiting.shift()) {
      try {
        const form = await formWith(photo.file, "images", this.#model?.limits?.body_bytes);
        const answer = await this.#server.call("POST", "predict?top=5&attention=true", form);
        const prediction = answer.predictions[0];
        if (prediction.error) throw new Trouble(prediction.error, 422);
        Object.assign(photo, { prediction, digest: answer.model.digest });
        if (this.#model && photo.digest !== this.#model.digest) this.#changed();
      } catch (problem) {
        photo.trouble = sentence(problem);
        // With these the photo itself is to blame: asking again will not help.
        photo.hopeless = problem instanceof Trouble && [413, 422].includes(problem.status);
      }
      this.#label(photo);
    }
    this.#busy -= 1;
  }

  /** @param {Photo} photo brings its thumbnail, and the answer where it is the one shown, up to date */
  #label(photo) {
    const { file, prediction, trouble } = photo;
    const best = prediction?.top[0];
    const flagged = Boolean(prediction?.flagged);
    photo.caption.textContent = trouble ? "no answer" : best ? `${best.class}${flagged ? "?" : ""}` : "…";
    photo.button.classList.toggle("doubtful", flagged || trouble !== null);
    if (photo !== this.#shown) return;
    this.#describe();
    const doubt = flagged ? "none of these? " : "";
    if (trouble) announce(`${file.name}: ${trouble}`);
    else if (best) announce(`${file.name}: ${doubt}${best.class}, ${percent(best.probability)}`);
  }

  /** @param {Photo} photo */
  async #show(photo) {
    this.#shown = photo;
    this.#bitmap?.close();
    this.#bitmap = null;
    byId("answer-picture").ariaBusy = "true";
    this.#describe();
    const bitmap = await createImageBitmap(photo.file).catch(() => null);
    if (photo !== this.#shown) {
      bitmap?.close();
      return;
    }
    this.#bitmap = bitmap;
    byId("answer-blind").hidden = bitmap !== null;
    this.#paint();
    byId("answer-picture").ariaBusy = "false";
  }

  #clear() {
    this.#photos.forEach((photo) => URL.revokeObjectURL(photo.address));
    this.#photos = [];
    this.#waiting = [];
    this.#shown = null;
    byId("photo-list").replaceChildren();
    this.#describe();
    byId("photo-button").focus();
  }

  /** The photo shown goes to the next lesson, as what a person says it is. */
  #take() {
    const photo = this.#shown;
    const input = /** @type {HTMLInputElement} */ (byId("answer-right"));
    const label = input.value.trim();
    if (!photo) return;
    const problem = this.#correct(label, photo.file);
    if (!problem) {
      photo.corrected = label;
      input.value = "";
    }
    this.#describe();
    if (problem) byId("answer-corrected").textContent = problem;
    announce(byId("answer-corrected").textContent ?? "");
  }

  /** Writes all that is known about the photo shown. */
  #describe() {
    const photo = this.#shown;
    byId("answer").hidden = !photo;
    byId("photo-shelf").hidden = !photo;
    byId("photo-drop").classList.toggle("narrow", Boolean(photo));
    if (!photo) return;
    this.#photos.forEach((other) => other.button.setAttribute("aria-current", String(other === photo)));
    const { prediction, trouble } = photo;
    byId("answer-file").textContent = photo.file.name;
    byId("answer-waiting").hidden = Boolean(prediction ?? trouble);
    byId("answer-body").hidden = !prediction;
    notice("answer-trouble", trouble, photo.hopeless ? undefined : () => this.#ask(photo));
    const stale = prediction && this.#model && photo.digest !== this.#model.digest;
    notice("answer-stale", stale ? "The model has changed since this answer." : null, () => this.#ask(photo));
    const mute = this.#model?.tasks.filter((task) => !task.classes.length) ?? []; // more of known classes, or all forgotten
    if (prediction) describe(prediction, new Set(mute.map((task) => task.index)));
    byId("answer-wrong").hidden = !this.#model?.can_teach || photo.corrected !== null;
    const waits = `It waits in the Teach tab, as ${photo.corrected}.`;
    byId("answer-corrected").textContent = photo.corrected === null ? "" : waits;
    const gated = Object.keys(this.#model?.capacity ?? {}).length > 0;
    const verdict = this.#model?.verdict ?? null;
    byId("map-verdict").textContent = verdict === null ? "" : `The map is the network’s. In this model ${verdict}.`;
    byId("answer-gates").textContent = gated && verdict === null ? "Which task’s gates answered" : "Which task answered";
    this.#offerMaps(prediction);
    this.#paint();
  }

  /** @param {Prediction | null} prediction */
  #offerMaps(prediction) {
    const maps = prediction?.attention?.maps ?? [];
    byId("map-controls").hidden = maps.length === 0;
    const select = /** @type {HTMLSelectElement} */ (byId("map-task"));
    const together = maps.length < (prediction?.tasks.length ?? 0); // a method with one pass for all tasks
    select.replaceChildren(
      ...maps.map((_, index) => {
        if (together) return new Option("All tasks", String(index));
        const task = index + 1;
        const answered = task === prediction?.answered_by;
        return new Option(answered ? `Task ${task} (answered)` : `Task ${task}`, String(index), answered, answered);
      }),
    );
  }

  #paint() {
    const canvas = /** @type {HTMLCanvasElement} */ (byId("answer-picture"));
    const select = /** @type {HTMLSelectElement} */ (byId("map-task"));
    const slider = /** @type {HTMLInputElement} */ (byId("map-opacity"));
    const attention = this.#shown?.prediction?.attention;
    const values = attention?.maps[Number(select.value)];
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const [rows, columns] = this.#model ? sidesOf(this.#model) : [1, 1];
    canvas.height = Math.round((canvas.width * rows) / columns);
    context.globalAlpha = 1;
    context.fillStyle = "white"; // the model, too, lays transparent pictures on white
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingQuality = "high";
    if (this.#bitmap) {
      const { width, height } = this.#bitmap;
      const step = Math.min(width / columns, height / rows);
      const [wide, high] = [step * columns, step * rows];
      const centre = /** @type {const} */ ([(width - wide) / 2, (height - high) / 2, wide, high]);
      context.drawImage(this.#bitmap, ...centre, 0, 0, canvas.width, canvas.height);
    }
    const least = values ? Math.min(...values) : 0;
    const flat = least >= FLAT;
    const range = `${Math.round(100 * least)} to 100 % of the peak`;
    byId("map-flat").textContent = flat ? `It looked everywhere alike (${range}), which says nothing: no map is drawn.` : "";
    byId("map-legend").hidden = flat;
    if (attention && values && !flat) {
      context.globalAlpha = Number(slider.value) / 100;
      context.drawImage(heat(values, attention.side), 0, 0, canvas.width, canvas.height);
    }
    const looked = values && !flat ? `, with its attention: ${select.selectedOptions[0].text.toLowerCase()}` : "";
    canvas.setAttribute("aria-label", `${this.#shown?.file.name ?? "The photo"} as the model sees it${looked}`);
  }
}

/** @param {Prediction} prediction @param {Set<number>} mute tasks without a class that could be the answer */
function describe(prediction, mute) {
  const { top, flagged, unknown, tasks, answered_by: answeredBy } = prediction;
  byId("answer-class").textContent = top[0]?.class ?? "No class";
  byId("answer-share").textContent = top[0] ? percent(top[0].probability) : "";
  byId("answer-body").classList.toggle("doubtful", flagged);
  const strange = `stranger to the model than ${percent(unknown ?? 0)} of the photos it was tested on`;
  notice("answer-flag", flagged ? `This photo is ${strange}: it may show none of the classes below.` : null);
  const known = unknown === null ? "Too few photos were held out to tell an unknown thing." : `This photo is ${strange}.`;
  byId("answer-unknown").textContent = flagged ? "" : known;
  const classBars = top.map(({ class: label, task, probability: share }, place) => {
    return { label, note: `task ${task}`, share, strong: place === 0 };
  });
  const taskBars = tasks.filter(({ task }) => !mute.has(task)).map(({ task, probability: share }) => {
    const answered = task === answeredBy;
    return { label: `Task ${task}`, note: answered ? "answered" : "", share, strong: answered };
  });
  showBars("answer-top", classBars);
  showBars("answer-tasks", taskBars);
}

/**
 * @param {number[]} values row by row, as shares of the largest @param {number} side values in a row
 * @returns {HTMLCanvasElement} one pixel per patch; drawing it larger smooths it
 */
function heat(values, side) {
  const canvas = document.createElement("canvas");
  canvas.width = side;
  canvas.height = values.length / side;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const pixels = context.createImageData(canvas.width, canvas.height);
  values.forEach((value, index) => {
    const place = value * (RAMP.length - 1); // on the scale of the legend, so that little difference looks like little
    const lower = Math.min(RAMP.length - 2, Math.floor(place));
    const [from, to] = [RAMP[lower], RAMP[lower + 1]];
    const [red, green, blue, opacity] = from.map((start, channel) => start + (to[channel] - start) * (place - lower));
    pixels.data.set([red, green, blue, 255 * opacity], 4 * index);
  });
  context.putImageData(pixels, 0, 0);
  return canvas;
}
