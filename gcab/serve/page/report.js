/** The Report tab: what `gcab report` writes about the model, in the look that its file has. */

import { byId, element, notice, sentence } from "./parts.js";

/** Asked for when it is looked at, and again when the model is another one. */
export class Report {
  /** @type {string | null} of the model that the report is about */ #shown = null;
  /** @type {string | null} of the model that there is now */ #wanted = null;
  #busy = false;
  #server;

  /** @param {import("./parts.js").Server} server */
  constructor(server) {
    this.#server = server;
    byId("panel-report").addEventListener("opened", () => void this.#show());
  }

  /** @param {import("./parts.js").Model} model */
  learned(model) {
    this.#wanted = model.digest;
    if (!byId("panel-report").hidden) void this.#show();
  }

  async #show() {
    if (this.#busy || this.#wanted === null || this.#shown === this.#wanted) return;
    this.#busy = true;
    byId("report-waiting").hidden = false;
    notice("report-trouble", null);
    try {
      const report = await this.#server.call("GET", "report");
      place(report.content);
      this.#shown = report.digest;
    } catch (problem) {
      notice("report-trouble", sentence(problem), () => void this.#show());
    }
    byId("report-waiting").hidden = true;
    this.#busy = false;
  }
}

/**
 * Apart from the rest of the page, so that neither's style reaches the other.
 * @param {string} content HTML in which the server has escaped every text; the page's policy lets no script of it run
 */
function place(content) {
  const host = byId("report");
  const inside = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const style = /** @type {HTMLLinkElement} */ (element("link"));
  style.rel = "stylesheet";
  style.href = "page/report.css";
  const parsed = new DOMParser().parseFromString(content, "text/html");
  inside.replaceChildren(style, ...parsed.body.children);
}
