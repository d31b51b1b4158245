/** Loose photos, class by class, until they are taught: chosen in the Teach tab, or answers that a person corrected. */

import { byId, counted, element } from "./parts.js";
import { zipOf } from "./zip.js";

/** Everything that waits to be taught. */
export class Loose {
  /** @type {Map<string, File[]>} by class */ #photos = new Map();
  #allowed = false;
  #complain;

  /**
   * @param {(archive: File) => void} teach takes all of them as a zip of class folders
   * @param {(sentence: string | null) => void} complain
   */
  constructor(teach, complain) {
    this.#complain = complain;
    const input = /** @type {HTMLInputElement} */ (byId("loose-input"));
    byId("loose-button").addEventListener("click", () => {
      const problem = problemWith(this.label);
      complain(problem);
      if (problem) byId("loose-class").focus();
      else input.click();
    });
    input.addEventListener("change", () => {
      complain(this.add(this.label, [...(input.files ?? [])]));
      /** @type {HTMLInputElement} */ (byId("loose-class")).value = "";
      input.value = ""; // the same file may be chosen again
    });
    byId("loose-teach").addEventListener("click", async () => teach(await this.archive()));
  }

  /** The class that is named in the form. */
  get label() {
    return /** @type {HTMLInputElement} */ (byId("loose-class")).value.trim();
  }

  /** @param {string} label @param {File[]} files @returns {string | null} what is wrong with the class's name */
  add(label, files) {
    const problem = problemWith(label);
    if (problem) return problem;
    this.#photos.set(label, [...(this.#photos.get(label) ?? []), ...files]);
    this.#show();
    return null;
  }

  clear() {
    this.#photos.clear();
    this.#show();
  }

  /** @param {boolean} allowed whether anything can be taught now */
  enable(allowed) {
    this.#allowed = allowed;
    for (const name of ["loose-class", "loose-button"]) {
      /** @type {HTMLButtonElement | HTMLInputElement} */ (byId(name)).disabled = !allowed;
    }
    this.#show();
  }

  /** @returns {Promise<File>} */
  archive() {
    const entries = [...this.#photos].flatMap(([label, files]) => {
      const taken = new Set();
      return files.map((file, index) => {
        let name = file.name.replace(/[/\\]/g, "-").replace(/^\./, `${index}-.`); // as its owner knows it from messages
        while (taken.has(name.toLowerCase())) name = `${index}-${name}`;
        taken.add(name.toLowerCase());
        return { path: `${label}/${name}`, file };
      });
    });
    return zipOf(entries, "photos.zip");
  }

  #show() {
    /** @type {HTMLButtonElement} */ (byId("loose-teach")).disabled = !this.#allowed || this.#photos.size === 0;
    byId("loose-list").replaceChildren(
      ...[...this.#photos].map(([label, files]) => {
        const remove = element("button", "plain", "Remove");
        remove.setAttribute("aria-label", `Remove the photos of ${label}`);
        remove.addEventListener("click", () => {
          this.#photos.delete(label);
          this.#complain(null);
          this.#show();
          byId("loose-class").focus();
        });
        const name = element("strong", "", element("bdi", "", label));
        return element("li", "row", element("span", "", name, ` ${counted(files, "photo", "photos")}`), remove);
      }),
    );
  }
}

/** @param {string} label @returns {string | null} why it cannot name a class */
function problemWith(label) {
  if (!label) return "Name the class first: photos are taught class by class.";
  return /[/\\]|^\./.test(label) ? "A class cannot be named with a slash, or with a dot in front." : null;
}
