/**
 * The parts every tab is built from: talking to the server, asking the person, building elements, taking files.
 *
 * @typedef {{index: number, classes: string[], again: string[], accuracy: number | null, held_out: number, now: number | null}} Task
 * @typedef {{name: string, version: string, method: string, generation: number | null, digest: string, image_size: number | number[],
 *   classes: {name: string, task: number}[], tasks: Task[], capacity: {input?: number, hidden?: number}, bytes: number,
 *   expected_accuracy: number | null, warnings: string[], verdict: string | null,
 *   stores_images: boolean, can_undo: boolean, undoes: "task" | "distillation" | "forgetting" | "renaming" | "joining" | null, can_teach: boolean,
 *   limits: {body_bytes: number, archive_bytes: number, pixels: number, batch: number}}} Model
 * @typedef {{label: string, note?: string, share: number, strong?: boolean}} Bar
 */

const TOKEN = "gcab-token";
const UNREACHABLE = "The server cannot be reached: check that gcab serve is still running.";
const PATIENCE = 60_000; // milliseconds until a silent server counts as gone
const FULL_QUEUE_TRIES = 5;
const CHART = { width: 240, height: 72, margin: 4 }; // as in the viewBox of the page

/** A problem to be shown as it is: one sentence. */
export class Trouble extends Error {
  /** @param {string} sentence @param {number} status the HTTP status, 0 where there was no answer */
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

/** @param {string[]} names @returns {string} */
const shortList = (names) =>
  names.length > 4 ? `${names.slice(0, 3).join(", ")} and ${names.length - 3} more` : names.join(", ");

/** @param {string[]} classes @param {string[]} again @returns {string} what a lesson was about: new classes, more of known ones */
export function subjects(classes, again) {
  const more = again.length ? [`more of ${shortList(again)}`] : [];
  return [...(classes.length ? [shortList(classes)] : []), ...more].join(" and ");
}

/** @param {unknown} problem @returns {string} the sentence to show for anything thrown */
export function sentence(problem) {
  return problem instanceof Trouble ? problem.message : `Something went wrong on this page (${problem}).`;
}

/** The one way to the server: adds the token and asks for it when needed, waits while the queue is full. */
export class Server {
  /** @type {Promise<boolean> | null} one dialog, however many calls were refused */
  #asking = null;

  /**
   * @param {string} method @param {string} path @param {FormData} [body]
   * @param {(share: number) => void} [onUpload] told the share of the body that was sent
   * @returns {Promise<any>} the document the server answered with
   */
  async call(method, path, body, onUpload) {
    for (let tries = 1; ; tries += 1) {
      const token = sessionStorage.getItem(TOKEN);
      const answer = await send(method, path, token, body, onUpload);
      if (answer.status >= 200 && answer.status < 300) return answer.response;
      if (answer.status === 401) {
        const renewed = token !== sessionStorage.getItem(TOKEN); // by another call, meanwhile
        if (renewed || (await this.#token(token !== null))) continue;
      }
      if (answer.status === 429 && tries < FULL_QUEUE_TRIES) {
        await pause(Math.min(10, Number(answer.getResponseHeader("Retry-After")) || 1));
        continue;
      }
      const said = answer.response?.error ?? `The server answered ${answer.status} without a reason.`;
      throw new Trouble(String(said), answer.status);
    }
  }

  /** @param {boolean} refused whether a token was sent and not accepted @returns {Promise<boolean>} */
  #token(refused) {
    this.#asking ??= (async () => {
      const input = /** @type {HTMLInputElement} */ (byId("token-input"));
      if (refused) byId("token-line").textContent = "That token was not accepted. Please check it and try again.";
      input.value = "";
      const given = await confirmed("token-dialog");
      if (given) sessionStorage.setItem(TOKEN, input.value);
      this.#asking = null;
      return given;
    })();
    return this.#asking;
  }
}

/**
 * @param {string} method @param {string} path @param {string | null} token @param {FormData} [body]
 * @param {(share: number) => void} [onUpload] @returns {Promise<XMLHttpRequest>}
 */
function send(method, path, token, body, onUpload) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch cannot tell how much of the upload has gone
    request.open(method, path);
    request.responseType = "json";
    if (token !== null) request.setRequestHeader("Authorization", `Bearer ${token}`);
    if (onUpload) request.upload.onprogress = (event) => onUpload(event.loaded / event.total);
    else request.timeout = PATIENCE;
    request.onload = () => resolve(request);
    request.onerror = () => reject(new Trouble(UNREACHABLE));
    request.ontimeout = request.onerror;
    request.send(body);
  });
}

/** @param {number} seconds @returns {Promise<void>} */
export const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

/** @param {string} dialogId @returns {Promise<boolean>} whether the person agreed */
export function confirmed(dialogId) {
  const dialog = /** @type {HTMLDialogElement} */ (byId(dialogId));
  const cancel = /** @type {HTMLButtonElement} */ (dialog.querySelector(".cancel"));
  cancel.onclick = () => dialog.close("");
  dialog.returnValue = ""; // what closing by the Escape key leaves
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element ${id}`);
  return found;
}

/**
 * Text only ever enters the page here, as text: a class may be named like a tag.
 * @param {string} tag @param {string} [style] its CSS classes @param {...(Node | string)} children
 * @returns {HTMLElement}
 */
export function element(tag, style = "", ...children) {
  const made = document.createElement(tag);
  if (style) made.className = style;
  made.append(...children);
  return made;
}

/** @param {string} id @param {string | null} text what to say in it; null hides it @param {() => void} [again] */
export function notice(id, text, again) {
  const box = byId(id);
  box.hidden = text === null;
  const line = box.querySelector("p, span");
  if (line) line.textContent = text ?? "";
  const button = box.querySelector("button");
  if (button) {
    button.hidden = !again;
    button.onclick = again ?? null;
  }
}

/** @param {string} text said once to those who listen to the page */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** @param {Model} model @returns {number[]} height and width of the images it sees */
export function sidesOf({ image_size: size }) {
  return typeof size === "number" ? [size, size] : size;
}

/** @param {string} listId @param {Bar[]} bars */
export function showBars(listId, bars) {
  byId(listId).replaceChildren(
    ...bars.map((bar) => {
      const fill = element("span", "fill");
      fill.style.width = `${100 * Math.max(0, Math.min(1, bar.share))}%`;
      const name = element("span", "bar-name", element("bdi", "", bar.label));
      if (bar.note) name.append(element("span", "tag", bar.note));
      const number = element("span", "number", percent(bar.share));
      return element("li", bar.strong ? "bar strong" : "bar", name, number, element("span", "track", fill));
    }),
  );
}

/** @param {number} share from 0 to 1 @returns {string} */
export const percent = (share) => `${(100 * share).toFixed(1)} %`;

/** @param {number | null | undefined} value in per cent @returns {string} */
export const accuracy = (value) => (value === null || value === undefined ? "–" : `${value.toFixed(1)} %`);

/** @param {number} bytes @returns {string} */
export function readableBytes(bytes) {
  const units = ["bytes", "kB", "MB", "GB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${(bytes / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

/** @param {unknown[]} things @param {string} one @param {string} many @returns {string} */
export const counted = (things, one, many) => `${things.length} ${things.length === 1 ? one : many}`;

/**
 * A small line chart of what is known by now.
 * @param {string} name of its elements @param {(number | null | undefined)[]} values
 * @param {(value: number) => string} written
 * @param {number} [most] top of the scale, by default the largest value
 */
export function drawLine(name, values, written, most) {
  const known = values.flatMap((value, place) => (Number.isFinite(value) ? [{ place, value: Number(value) }] : []));
  byId(`${name}-now`).textContent = known.length ? written(known[known.length - 1].value) : "–";
  const top = most ?? Math.max(...known.map(({ value }) => value), Number.EPSILON);
  const { width, height, margin } = CHART;
  const points = known.map(({ place, value }) => {
    const x = margin + ((width - 2 * margin) * place) / Math.max(1, values.length - 1);
    return `${x.toFixed(1)},${(height - margin - ((height - 2 * margin) * value) / top).toFixed(1)}`;
  });
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points.length === 1 ? `${points[0]} ${points[0]}` : points.join(" "));
  byId(`${name}-line`).replaceChildren(line);
}

/**
 * @param {File} file @param {string} field @param {number} [most] bytes the server takes
 * @returns {Promise<FormData>} the file as a form, once it is known that sending it makes sense
 */
export async function formWith(file, field, most = Infinity) {
  if (file.size > most) {
    const [size, limit] = [readableBytes(file.size), readableBytes(most)];
    throw new Trouble(`${file.name} has ${size}; this server takes at most ${limit}.`, 413);
  }
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch {
    throw new Trouble(`${file.name} cannot be read: it is a folder, or it is no longer there.`, 422);
  }
  const form = new FormData();
  form.append(field, file, file.name);
  return form;
}

/**
 * Files come by button or by a drop anywhere on the page while the panel is the one shown.
 * @param {string} name of the drop zone, its button and its input @param {string} panelId
 * @param {(files: File[]) => void} take
 */
export function takeFiles(name, panelId, take) {
  const zone = byId(`${name}-drop`);
  const button = /** @type {HTMLButtonElement} */ (byId(`${name}-button`));
  const input = /** @type {HTMLInputElement} */ (byId(`${name}-input`));
  const ready = () => !byId(panelId).hidden && !button.disabled;
  button.addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    take([...(input.files ?? [])]);
    input.value = ""; // the same file may be chosen again
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault(); // or a missed drop would replace the page by the photo
    zone.classList.toggle("over", ready());
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) zone.classList.remove("over");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length && ready()) take(files);
  });
}

/**
 * What an undo takes back, where it leads, and what it costs; `task` describes the last task.
 * @param {"task" | "distillation" | "forgetting"} what
 * @param {string} task
 */
export function undoing(what, task) {
  return {
    task: { name: "last task", before: task, warning: `The model forgets ${task}. To get it back, its photos must be taught again.` },
    distillation: {
      name: "distillation",
      before: "its distillation",
      warning: "The model forgets no class, but is larger and slower again, with a pass for every task.",
    },
    forgetting: { name: "forgetting", before: "it forgot a class", warning: "The model knows the class again that it forgot." },
    renaming: { name: "renaming", before: "a class was renamed", warning: "The class has its name from before again." },
    joining: { name: "joining", before: "two classes were joined", warning: "The model tells the two classes apart again." },
  }[what];
}
