"""A table or figure of the paper as a folder: pictures, numbers, and a list of the runs behind them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from gcab.config import scenario_preset
from gcab.errors import GcabError
from gcab.paper import drawings, embedding, numbers
from gcab.paper.evidence import Record, distillations, epochs_of, finished, read_json, reduced, timings
from gcab.paper.origin import origin
from gcab.paper.recipes import RECIPES
from gcab.paper.store import RESULTS, keep, store_of, way
from gcab.report.figures import save
from gcab.report.plotting import STYLE
from gcab.report.tables import NOTHING, Table
from gcab.runs.environment import HARDWARE, environment
from gcab.runs.files import write_bytes, write_json
from gcab.runs.folder import RUN_LIST, RunFolder

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


def no_files(_: Sequence[RunFolder]) -> set[Path]:
    return set()


class Exhibit(NamedTuple):
    """What is made of a recipe's runs; there are no lines where the runs lack what it needs."""

    lines: Callable[[Sequence[RunFolder]], list[Record]]
    figure: "Callable[[Sequence[RunFolder], Sequence[Record]], Figure]"
    needs: str  # said where there are no lines
    note: str = ""
    details: tuple[str, ...] = ()  # columns that a terminal has no room for
    files: tuple[str, ...] = ()  # of a run, beside its configuration and log; {last} is its last task
    used: Callable[[Sequence[RunFolder]], list[RunFolder]] = list  # the runs that lines come from
    doubled: Callable[[Sequence[RunFolder]], set[Path]] = no_files  # that another run of the figure has, too


class Entry(TypedDict):
    folder: str


class Published(TypedDict):
    """What is read of a figure's numbers."""

    runs: list[Entry]


def gated(runs: Sequence[RunFolder]) -> list[RunFolder]:
    return [run for run in runs if any(record["capacity"] for record in run.records("task"))]


def with_students(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Of other seeds, too: they count where GCAB itself is averaged."""
    groups = {run.group for run in runs if distillations(run)}
    return [run for run in runs if run.group in groups]


def timed(runs: Sequence[RunFolder]) -> list[RunFolder]:
    return [run for run in runs if timings(run)]


STUDENT, STUDENTS = "fast-80/fast.json", "fast-*/fast.json"
EXHIBITS: dict[str, Exhibit] = {
    "main": Exhibit(
        numbers.main,
        drawings.main,
        "a finished run",
        "Per cent after the last task. GCAB-Fast at 80 % capacity; its seconds are the distillation's alone.",
        files=(STUDENT,),
    ),
    "ablation": Exhibit(
        numbers.ablation,
        drawings.ablation,
        "a finished run",
        "Per cent after the last task. Class statistics are ours; the paper's numbers stand beside rows without them.",
        ("Gates", "PFR", "Compensation"),  # a row's name tells
    ),
    "hyperparameters": Exhibit(
        numbers.hyperparameters,
        drawings.hyperparameters,
        "runs that differ in options.lambda_gcab or lambda_pfr alone",
        "Per cent after the last task. Heads alone: ACC_TAG of the paper's decision, without class statistics.",
    ),
    "capacity": Exhibit(numbers.capacity, drawings.capacity, "a run with gates", used=gated),
    "distillation": Exhibit(
        numbers.distillation,
        drawings.distillation,
        "a run that was distilled (gcab distill RUN --capacity 0.8)",
        "Per cent after the last task; the line without a capacity is GCAB before distillation. Heads alone: ACC_TAG "
        "of the paper's decision, without class statistics. KL to GCAB: of the heads, on the last task's images.",
        files=(STUDENTS,),
        used=with_students,
    ),
    "embedding": Exhibit(
        embedding.records,
        embedding.figure,
        "two gcab runs of one seed, with options.drift pfr and none, with their predictions folders",
        "Per cent of task 1's test images nearest to the mean that their class had after task 1, in the decoder's "
        "embedding.",
        files=embedding.FILES,
        used=embedding.paired,
        doubled=embedding.doubled,
    ),
    "runtime": Exhibit(
        numbers.runtime,
        drawings.runtime,
        "a run with its model",
        "One image, float32, medians, which training does not change; MACs are counted, one is two FLOPs; the paper "
        "calls its number GFLOPs. Recorded: as a CUDA graph.",
        ("FLOPs, M",),
        (STUDENTS, "runtime-*.json"),
        timed,
    ),
    "memory": Exhibit(
        numbers.memory,
        drawings.memory,
        "a finished run",
        "Kept between tasks, MB = 1 000 000 bytes (the paper's MB of 1 048 576 are converted). GCAB-Fast at 80 %.",
        ("Epochs", "Parameters, M", "Images, MB", "Class statistics, MB", "ACC_TAW", "ACC_TAW ±"),
        files=(STUDENT,),
    ),
}


def publish(name: str, runs: Sequence[RunFolder], out: Path, command: str) -> Table:
    """Write the folder `out`; returns the table for a terminal, which is narrow."""
    recipe, exhibit, runs = RECIPES[name], EXHIBITS[name], drawn(name, runs)
    lines = exhibit.lines(runs)
    if not lines:
        raise GcabError(f"the figure {name} needs {exhibit.needs}: there is none among the runs given.")
    schedule = reduced(runs)
    title = f"{recipe.title}. {schedule}" if schedule else recipe.title
    table = table_of(title, lines, exhibit.note)
    picture = draw(exhibit, runs, lines, [recipe.title, schedule])
    doubled = exhibit.doubled(runs)
    places = [keep(run, out, exhibit.files, doubled) for run in runs]
    names = [str(place.relative_to(store_of(out))) for place in places]
    log = [entry_of(run, way(out, place)) for run, place in zip(runs, places, strict=True)]
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
    """Those of the runs given that a figure is made of."""
    return EXHIBITS[name].used(finished(runs))


def draw(exhibit: Exhibit, runs: Sequence[RunFolder], lines: Sequence[Record], titles: Sequence[str]) -> "Figure":
    """In the reports' style; a reduced schedule is said in the picture itself."""
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
    entries = [entry for file in figures if file.exists() for entry in read_json(file, Published)["runs"]]
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
