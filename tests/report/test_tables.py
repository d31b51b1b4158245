"""Tables hold the right numbers under readable labels, in the terminal and in HTML."""

import re
import statistics
from io import StringIO
from pathlib import Path

import pytest
from helpers.synthetic_runs import rewrite_metrics, write_comparison, write_run
from rich.console import Console

from gcab.report.tables import Table, accuracy_table, compare_table, group_runs, memory_table
from gcab.runs.folder import find_runs

pytestmark = pytest.mark.repeats


def test_seeds_are_gathered_and_the_best_comes_first(tmp_path: Path) -> None:
    runs = write_comparison(tmp_path, tasks=3)
    table = compare_table(runs)
    assert [row[0] for row in table.rows] == ["joint", "gcab", "finetune"]
    assert [row[1] for row in table.rows] == ["2", "2", "2"]
    finals = [run.final() for run in runs if run.method == "gcab"]
    values = [final["acc_tag"] for final in finals if final]
    expected = f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"
    assert table.rows[1][table.columns.index("ACC_TAG")] == expected
    assert table.rows[0][table.columns.index("Forgetting")] == "–"


def test_one_seed_has_no_deviation_and_undefined_metrics_no_column(tmp_path: Path) -> None:
    table = compare_table([write_run(tmp_path, "joint", tasks=3)])
    assert "±" not in " ".join(table.rows[0])
    assert "Forgetting" not in table.columns
    assert "ACC_TAG" in table.columns


def test_a_label_names_only_what_differs(tmp_path: Path) -> None:
    shared = {"lambda_pfr": 0.001}
    runs = [
        write_run(tmp_path, "gcab", 1, 2, options={"compensation": True, **shared}),
        write_run(tmp_path, "gcab", 1, 2, options={"compensation": False, **shared}),
        write_run(tmp_path, "finetune", 1, 2),
    ]
    assert [group.label for group in group_runs(runs)] == [
        "gcab (compensation=True)",
        "gcab (compensation=False)",
        "finetune",
    ]
    assert [group.label for group in group_runs(runs[:1])] == ["gcab"]


def test_a_label_names_the_scenario_and_the_training_where_they_differ(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "gcab", 1, 2), write_run(tmp_path, "gcab", 1, 3, epochs=9)]
    labels = [group.label for group in group_runs(runs)]
    assert labels == ["gcab (scenario=toy-2, tasks=2, epochs=12)", "gcab (scenario=toy-3, tasks=3, epochs=9)"]


def test_a_long_label_is_cut_and_equal_labels_are_told_apart(tmp_path: Path) -> None:
    many = [{"a": value, "b": value, "c": value, "d": value, "e": value} for value in (1, 2)]
    labels = [group.label for group in group_runs([write_run(tmp_path, "gcab", 1, 2, options=one) for one in many])]
    assert labels[0] == "gcab (a=1, b=1, c=1, 2 more)"
    runs = [write_run(tmp_path, "finetune", 1, 2), write_run(tmp_path, "finetune", 1, 2, options={"new": 1})]
    first, second = (group.label for group in group_runs(runs))
    assert first != second
    assert first.startswith("finetune [")


def test_unfinished_runs_are_listed_as_such(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "gcab", 1, 3), write_run(tmp_path, "gcab", 2, 3, learned=2)]
    table = compare_table(runs)
    assert table.rows[0][:2] == ["gcab", "1"]
    assert table.rows[1][0] == "gcab, seed 2: unfinished, 2 of 3 tasks learned"
    assert set(table.rows[1][1:]) == {"–"}


def test_accuracy_per_task_after_the_last_task(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, "gcab", 1, 3),
        write_run(tmp_path, "gcab", 2, 3, learned=1),
        write_run(tmp_path, "joint", 1, 3, learned=None),
        write_run(tmp_path, "finetune", 1, 3, learned=0),
    ]
    table = accuracy_table(runs)
    assert table.columns == ["Run", "Task 1", "Task 2", "Task 3", "All"]
    assert [row[0] for row in table.rows] == [
        "gcab, seed 1",
        "gcab, seed 2 (unfinished)",
        "joint",
        "finetune (unfinished)",
    ]
    last = runs[0].records("task")[-1]
    assert table.rows[0][1:4] == [f"{a:.1f} / {b:.1f}" for a, b in zip(last["tag"], last["taw"], strict=True)]
    final = runs[0].final()
    assert final is not None
    assert table.rows[0][4] == f"{final['acc_tag']:.1f} / {final['acc_taw']:.1f}"
    assert table.rows[1][2:4] == ["–", "–"]
    assert table.rows[3][1:] == ["–", "–", "–", "– / –"]


def test_memory_adds_up(tmp_path: Path) -> None:
    run = write_run(tmp_path, "gcab", 1, 2)
    rewrite_metrics(run, {"bytes": {"model": 50_000_000, "images": 1_500_000, "prototypes": 250_000}}, "final")
    unfinished = write_run(tmp_path, "finetune", 1, 2, learned=1)
    untouched = write_run(tmp_path, "finetune", 1, 2, learned=0, options={"x": 1})
    table = memory_table([run, unfinished, untouched])
    final = run.final()
    assert final is not None
    assert table.rows[0] == ["gcab", "13.90", "50.00", "1.50", "0.25", "51.75", f"{final['acc_tag']:.1f}"]
    assert table.rows[1][-2:] == ["55.60", "–"]
    assert len(table.rows) == 2


def terminal(table: Table, width: int = 120) -> str:
    page = StringIO()
    Console(width=width, file=page).print(table)
    return page.getvalue()


def test_names_are_text_in_both_renderings() -> None:
    table = Table("[bold]", ["Run", "<b>"], [["[red]x[/red]", "<script>"]], "a & b")
    assert "[red]x[/red]" in terminal(table)
    assert "[bold]" in terminal(table)
    html = table.html()
    assert "&lt;script&gt;" in html
    assert "&lt;b&gt;" in html
    assert "a &amp; b" in html
    assert "<script>" not in html


@pytest.mark.parametrize("columns", [4, 12])
def test_a_table_wider_than_long_is_turned(columns: int) -> None:
    names = ["Run", *(f"column {index}" for index in range(1, columns))]
    table = Table("wide", names, [["only", *(str(index) for index in range(1, columns))]])
    html = table.html()
    assert html.count('scope="col"') == (2 if columns > 8 else columns)
    assert html.count('scope="row"') == (columns - 1 if columns > 8 else 1)
    assert all(name in terminal(table) for name in names)


def cells(text: str) -> set[str]:
    """What stands between the borders of a printed table."""
    return {cell.strip() for line in text.splitlines() for cell in re.split("[┃│]", line)}


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("groups", range(1, 13))
def test_a_comparison_breaks_no_word_and_no_number(tmp_path: Path, groups: int, width: int) -> None:
    for number in range(groups):
        options = {"compensation": number % 2 == 0, "distillation_temperature": number, "lambda_pfr": number / 8}
        for seed in (1, 2):
            write_run(tmp_path, ("gcab", "finetune")[number // 6], seed, 3, options=options, epochs=1 + number)
    write_run(tmp_path, "joint", 1, 3, learned=1)
    table = compare_table(find_runs([tmp_path]))
    text = terminal(table, width)
    names, numbers = [row[0] for row in table.rows], [cell for row in table.rows for cell in row[1:]]
    assert max(map(len, text.splitlines())) <= width
    assert cells(text).issuperset(numbers)
    assert {word for cell in cells(text) for word in cell.split() if word[0] not in "┏┡└"} <= {
        word for part in (table.title, *table.columns, *names, *numbers, table.note) for word in part.split()
    }


@pytest.mark.parametrize(("width", "bands"), [(80, 4), (120, 2), (200, 1)])
def test_columns_without_room_stand_below_with_the_names(width: int, bands: int) -> None:
    names = [f"gcab (compensation=False, buffer={number})" for number in range(12)]
    columns = [f"Metric {number}" for number in range(10)]
    table = Table("Wide", ["Method", *columns], [[name, *["-13.5 ± 2.4"] * 10] for name in names], "A note.")
    text = terminal(table, width)
    for name in names:
        assert text.count(name.split()[-1]) == bands
    for once in ("Wide", "A note.", *columns):
        assert text.count(once) == 1
    assert len({line.index("┳") for line in text.splitlines() if "┳" in line}) == 1


def test_rows_are_named_by_as_many_columns_as_it_takes() -> None:
    rows = [[method, data, *["12.3 ± 4.5"] * 6] for method in ("gcab", "joint") for data in ("digits/2", "digits/5")]
    text = terminal(Table("", ["Method", "Scenario", *(f"Metric {number}" for number in range(6))], rows), 80)
    for method, data in (("gcab", "digits/2"), ("gcab", "digits/5"), ("joint", "digits/2"), ("joint", "digits/5")):
        assert len(re.findall(rf"│ {method} +│ +{data} │", text)) == 2


def test_two_numbers_of_a_cell_part_before_a_table_does() -> None:
    rows = [[name, *["94.3 / 100.0"] * 6] for name in ("finetune", "gcab")]
    text = terminal(Table("", ["Run", *(f"Task {number}" for number in range(1, 6)), "All"], rows), 80)
    assert text.count("┏") == 1
    assert {"94.3 /", "100.0"} <= cells(text)


def test_a_word_too_long_for_its_column_is_cut_and_numbers_are_not() -> None:
    text = terminal(Table("", ["Run", "Metric"], [["y" * 99, "-13.5 ± 2.4"]]), 40)
    assert max(map(len, text.splitlines())) <= 40
    assert text.count("y") == 99
    assert "-13.5 ± 2.4" in cells(text)


def test_no_runs_give_empty_tables() -> None:
    assert compare_table([]).rows == accuracy_table([]).rows == memory_table([]).rows == []


def test_a_profile_is_named_where_it_is_not_the_default_or_runs_elsewhere_have_another(tmp_path: Path) -> None:
    here, there = (write_run(tmp_path / name, "gcab", 1, 2, profile=name) for name in ("extended", "official"))
    assert [group.label for group in group_runs([here])] == ["gcab"]
    assert [group.label for group in group_runs([there])] == ["gcab (official)"]
    assert [group.label for group in group_runs([here], elsewhere=[here, there])] == ["gcab (extended)"]


def test_a_seed_that_was_run_again_is_no_second_seed(tmp_path: Path) -> None:
    once, again = (write_run(tmp_path / name, "gcab", 1, 2) for name in ("once", "again"))
    rewrite_metrics(again, {"acc_tag": 12.0}, "final")
    other = write_run(tmp_path / "other", "gcab", 2, 2)
    groups = group_runs([once, again, other])
    assert [(group.label, [run.seed for run in group.runs]) for group in groups] == [
        ("gcab", [1, 2]),
        ("gcab, run again", [1]),
    ]


def test_a_comparison_says_that_it_was_made_on_held_out_images(tmp_path: Path) -> None:
    here, there = (write_run(tmp_path / name, "gcab", 1, 2) for name in ("here", "there"))
    assert "held-out" not in compare_table([here]).note
    here.config["scenario"]["validation"] = 0.1
    assert compare_table([here]).note.endswith(" On held-out training images.")
    assert compare_table([here, there]).note.endswith(" On held-out training images in some runs.")


def test_a_profile_stands_for_all_it_changes(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, "gcab", 1, 2, profile="extended", options={"lambda_pfr": 2.0, "compensation": True}),
        write_run(tmp_path, "gcab", 1, 2, profile="extended", options={"lambda_pfr": 2.0, "compensation": False}),
        write_run(tmp_path, "gcab", 1, 2, profile="official", options={"lambda_pfr": 0.001, "compensation": True}),
        write_run(tmp_path, "finetune", 1, 2, profile="extended"),
    ]
    assert [group.label for group in group_runs(runs)] == [
        "gcab (extended, compensation=True)",
        "gcab (extended, compensation=False)",
        "gcab (official)",
        "finetune",
    ]
