"""A table or figure of the paper as a folder: pictures, numbers, and a list of the runs behind them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gcab.config import scenario_preset
from gcab.errors import GcabError
from gcab.paper.evidence import Record, epochs_of, finished, read_json, reduced
from gcab.paper.exhibits import EXHIBITS, Exhibit
from gcab.paper.origin import origin
from gcab.paper.recipes import RECIPES
from gcab.paper.store import RESULTS, keep, relative_path, store_of
from gcab.records import FigureRecord
from gcab.report.plotting import STYLE, save
from gcab.report.tables import NOTHING, Table
from gcab.runs.environment import HARDWARE, environment
from gcab.runs.files import write_bytes, write_json
from gcab.runs.finding import RUN_LIST
from gcab.runs.folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NAMES = ("Method", "Row", "Run", "Weight")  # come first in a table
SOFTWARE = ("commit", "commit_corrected", "versions", "command")
SHARED = {  # columns only where lines differ in them, else words of the note
    "Scenario": "scenario",
    "Series": "series",
    "Epochs": "epochs",
    "Tasks": "tasks",
    "Seeds": "number of seeds",
}


def publish(name: str, runs: Sequence[RunFolder], out: Path, command: str) -> Table:
    """Write the folder `out`; returns the table for a terminal, which is narrow."""
    recipe, exhibit, runs = RECIPES[name], EXHIBITS[name], drawn(name, runs)
    lines = exhibit.lines(runs)
    if not lines:
        raise GcabError(f"the figure {name} needs {exhibit.needs}: there is none among the runs given.")
    schedule = reduced(runs, recipe.whole)
    title = f"{recipe.title}. {schedule}" if schedule else recipe.title
    table = table_of(title, lines, exhibit.note)
    picture = draw(exhibit, runs, lines, [recipe.title, schedule])
    doubled = exhibit.doubled(runs)
    places = [keep(run, out, exhibit.files, doubled) for run in runs]
    names = [str(place.relative_to(store_of(out))) for place in places]
    log = [entry_of(run, relative_path(out, place)) for run, place in zip(runs, places, strict=True)]
    write_json(
        out / f"{name}.json",
        {
            "format": 1,
            **environment(),
            "command": command,
            "figure": name,
            "title": recipe.title,
            "source": recipe.source,
            "reduced": schedule,
            "lines": lines,
            "runs": log,
        },
    )
    list_runs(out)
    for kind in ("png", "svg"):
        save(picture, out / f"{name}.{kind}", kind)
    text = (
        f"# {title}\n\nThe paper: {recipe.source}. {origin(name, runs, names, out)}\n\n"
        f"![{recipe.title}]({name}.png)\n\n{markdown(table)}\n## Runs\n\n{markdown(runs_table(runs, names, log))}"
    )
    write_bytes(out / f"{name}.md", text.encode())
    shown = [{key: line[key] for key in line if key not in exhibit.details} for line in lines]
    return table_of(title, shown, exhibit.note)


def drawn(name: str, runs: Sequence[RunFolder]) -> list[RunFolder]:
    """The given runs that a figure uses."""
    return EXHIBITS[name].used(finished(runs))


def draw(exhibit: Exhibit, runs: Sequence[RunFolder], lines: Sequence[Record], titles: Sequence[str]) -> "Figure":
    """Draw in the reports' style; a reduced schedule is named in the picture itself."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        figure = exhibit.figure(runs, lines)
        figure.set_figheight(figure.get_figheight() + 0.5)
        figure.suptitle("\n".join(filter(None, titles)), fontsize=11)
        return figure


def table_of(title: str, lines: Sequence[Record], note: str = "") -> Table:
    """Text of all columns that have a value in some line; circumstances that are the same everywhere join the note."""
    names = dict.fromkeys(column for line in lines for column in line)
    filled = [name for name in names if any(line.get(name) not in (None, "") for line in lines)]
    shared = [name for name in SHARED if name in filled and len({line.get(name) for line in lines}) == 1]
    columns = sorted((name for name in filled if name not in shared), key=lambda name: name not in NAMES)
    common = ", ".join(f"{SHARED[name]} {cell(lines[0][name])}" for name in shared)
    said = f"{common.capitalize()}. {note}".strip() if common else note
    return Table(title, columns, [[cell(line.get(name)) for name in columns] for line in lines], said)


def cell(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.2f}" if value == 0 or abs(value) >= 0.1 else f"{value:.3g}"
    return str(value)


def markdown(table: Table) -> str:
    """A table and its note, as documents on the web show them."""
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    text = "".join(f"| {' | '.join(entry.replace('|', '/') for entry in line)} |\n" for line in lines)
    return f"{text}\n{table.note}\n" if table.note else text


def list_runs(out: Path) -> None:
    """Name the runs of all figures in a folder, so that whatever reads runs can be given the folder."""
    figures = [out / f"{name}.json" for name in RECIPES]
    entries = [entry for file in figures if file.exists() for entry in read_json(file, FigureRecord)["runs"]]
    write_json(out / RUN_LIST, sorted({entry["folder"] for entry in entries}))


def entry_of(run: RunFolder, folder: str) -> Record:
    """Where a run is kept, and what made it."""
    final = run.final() or {}
    return {
        "folder": folder,
        "seed": run.seed,
        "epochs": epochs_of(run),
        "seconds": final.get("seconds"),
        **{key: run.document[key] for key in (*HARDWARE, *SOFTWARE) if key in run.document},
    }


def runs_table(runs: Sequence[RunFolder], names: Sequence[str], log: Sequence[Record]) -> Table:
    """Where each number comes from."""
    lines = [
        {
            "Run": f"[{name}]({entry['folder']})",
            "Epochs": entry["epochs"],
            "Wall time, s": entry["seconds"],
            "Device": entry.get("device"),
            "Precision": entry.get("precision"),
            "Commit": run.commit,
            "torch": entry["versions"].get("torch"),
            "Command": f"`{entry.get('command')}`",
        }
        for run, name, entry in zip(runs, names, log, strict=True)
    ]
    return table_of("Runs", lines)


def default_folder(name: str, runs: Sequence[RunFolder]) -> Path:
    """results/NAME-data set-tasks-epochs, such as results/main-cifar100-5-10-500-epochs."""
    scenarios: dict[str, set[int]] = {}
    runs = drawn(name, runs)
    for run in runs:
        preset = scenario_preset(run.scenario)
        scenarios.setdefault(preset["scenario.dataset"], set()).add(preset["scenario.tasks"])
    where = [part for data, tasks in scenarios.items() for part in (data, *map(str, sorted(tasks)))]
    epochs = map(str, sorted({epochs_of(run) for run in runs}))
    return Path(RESULTS) / "-".join([name, *where, *epochs, "epochs"])
