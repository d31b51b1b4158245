"""The memory figure: a method looks the same in every panel, and no two methods look alike."""

from typing import Any

from gcab.paper import drawings
from gcab.paper.evidence import AGAIN


def line(scenario: str, method: str, size: float) -> dict[str, Any]:
    return {
        "Scenario": scenario,
        "Method": method,
        "Total, MB": size,
        "ACC_TAG": size,
        "Paper total, MB": None,
        "Paper ACC_TAG": None,
    }


def test_a_model_measured_again_looks_like_its_method() -> None:
    others = [f"method {number}" for number in range(6)]
    lines = [line("a/2", f"GCAB{AGAIN}", 1.0), *(line("a/2", name, 2.0) for name in others), line("a/3", "GCAB", 3.0)]
    first, second = drawings.memory([], lines).axes
    looks = {drawn.get_label(): (drawn.get_color(), drawn.get_marker()) for drawn in (*first.lines, *second.lines)}
    assert looks[f"GCAB{AGAIN}"] == looks["GCAB"]
    assert len(set(looks.values())) == len(looks) - 1
