/**
 * The page of gcab serve: the tabs and the Model tab; every other tab has a file of its own.
 *
 * @typedef {import("./parts.js").Model} Model
 */

import { accuracy, byId, counted, element, notice, readableBytes, sentence, Server, showBars, sidesOf, subjects } from "./parts.js";
import { Predict } from "./predict.js";
import { Report } from "./report.js";
import { Teach } from "./lessons.js";

const MANY_CLASSES = 12; // a task with more starts folded

/** Shows one panel at a time, by click, arrow keys or the address. */
class Tabs {
  #tabs = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("[role=tab]")]);

  constructor() {
    this.#tabs.forEach((tab, place) => {
      tab.addEventListener("click", () => this.open(tab.id));
      tab.addEventListener("keydown", (event) => {
        const target = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: -1 }[event.key];
        const tab = target === undefined ? undefined : this.#tabs.at(target) ?? this.#tabs[0];
        if (!tab) return;
        event.preventDefault();
        this.open(tab.id);
        tab.focus();
      });
    });
    const follow = () => this.open(`tab-${location.hash.slice(1)}`);
    addEventListener("hashchange", follow);
    follow();
  }

  /** @param {string} id of a tab; an unknown one changes nothing */
  open(id) {
    if (!this.#tabs.some((tab) => tab.id === id)) return;
    for (const tab of this.#tabs) {
      tab.setAttribute("aria-selected", String(tab.id === id));
      tab.tabIndex = tab.id === id ? 0 : -1;
      const panel = byId(tab.getAttribute("aria-controls") ?? "");
      panel.hidden = tab.id !== id;
      if (!panel.hidden) panel.dispatchEvent(new Event("opened"));
    }
    history.replaceState(null, "", `#${id.slice("tab-".length)}`);
  }
}

/** @param {Model} model */
function showModel(model) {
  const line = `${counted(model.classes, "class", "classes")} in ${counted(model.tasks, "task", "tasks")}`;
  document.title = `${model.name} · gcab`;
  byId("model-name").textContent = model.name;
  byId("model-line").textContent = !model.generation ? line : `${line} · generation ${model.generation}`;
  const facts = {
    Name: model.name,
    Version: `gcab ${model.version}`,
    Method: model.method,
    Generation: model.generation || "–",
    Classes: model.classes.length,
    "Right now": model.expected_accuracy === null ? "not known" : `about ${model.expected_accuracy.toFixed(0)} % of new photos, an estimate`,
    "Image size": `${sidesOf(model).join(" × ")} pixels`,
    Size: `${readableBytes(model.bytes)}, ${model.stores_images ? "some photos in it" : "no photo in it"}`,
  };
  byId("model-facts").replaceChildren(
    ...Object.entries(facts).flatMap(([name, value]) => [element("dt", "", name), element("dd", "", String(value))]),
  );
  const used = Object.entries({ "Input gates": model.capacity?.input, "Hidden gates": model.capacity?.hidden });
  const left = used.flatMap(([label, share]) => (share === undefined ? [] : [{ label, share: 1 - share }]));
  showBars("model-capacity", left);
  if (!left.length) byId("model-capacity").append(element("li", "soft", "This method has no gates to fill."));
  const warnings = model.warnings.map((text) => element("li", "notice", text));
  byId("model-warnings").replaceChildren(...warnings);
  byId("model-tasks").replaceChildren(...model.tasks.map((task) => taskElement(task, task === model.tasks.at(-1))));
  const known = model.classes.map(({ name }) => /** @type {HTMLOptionElement} */ (new Option(name)));
  byId("known-classes").replaceChildren(...known);
  byId("model-waiting").hidden = true;
  byId("model-body").hidden = false;
}

/** @param {import("./parts.js").Task} task @param {boolean} newest of which little or nothing is estimated @returns {HTMLElement} */
function taskElement(task, newest) {
  const measured = task.accuracy === null ? "accuracy not measured" : `${accuracy(task.accuracy)} right when learned`;
  const photos = task.held_out ? ` (${task.held_out} held out)` : "";
  const same = newest && task.now?.toFixed(0) === task.accuracy?.toFixed(0);
  const now = same || task.now === null ? "" : ` · about ${task.now.toFixed(0)} % now, an estimate`;
  const about = task.classes.length ? [counted(task.classes, "class", "classes")] : [];
  const more = task.again.length ? [subjects([], task.again)] : [];
  const line = `${[...about, ...more].join(" · ")} · ${measured}${photos}${now}`;
  const details = /** @type {HTMLDetailsElement} */ (element(
    "details", "task",
    element("summary", "", element("strong", "", `Task ${task.index}`), element("span", "soft", line)),
    element("ul", "chips", ...task.classes.map((name) => element("li", "", element("bdi", "", name)))),
  ));
  details.open = task.classes.length <= MANY_CLASSES;
  return details;
}

/** Puts the tabs together and asks for the model. */
function start() {
  const server = new Server();
  const tabs = new Tabs();
  const report = new Report(server);
  const predict = new Predict(server, {
    appear: () => tabs.open("tab-predict"),
    changed: () => void load(),
    correct: (label, file) => teach.add(label, [file]),
  });
  /** @param {Model} [given] where the server sent it already */
  const load = async (given) => {
    try {
      const model = given ?? (await server.call("GET", "model"));
      notice("trouble", null);
      showModel(model);
      predict.learned(model);
      teach.learned(model);
      report.learned(model);
    } catch (problem) {
      notice("trouble", sentence(problem), () => void load());
      if (byId("model-body").hidden) byId("model-line").textContent = "No model yet";
    }
  };
  const teach = new Teach(server, load);
  void load();
}

start();
